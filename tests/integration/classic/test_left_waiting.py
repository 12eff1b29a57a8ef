"""Before an uninstall: pods that wait are named, and the command of docs/operations.md deletes them and no others."""

import asyncio
import os
import re
import sys
from pathlib import Path

from stage import PATIENCE, pod

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


async def shell(cluster, command):
    """Output, errors and exit code, with kubectl on the PATH and the cluster as the current one."""
    programs = f"{Path(cluster.record().programs['kubectl']).parent}:{Path(sys.executable).parent}"
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KUBECONFIG": str(cluster.kubeconfig)}
    async with asyncio.timeout(PATIENCE):
        process = await asyncio.create_subprocess_shell(command, stdout=-1, stderr=-1, env=env)
        out, errors = await process.communicate()
    return out.decode(), errors.decode(), process.returncode


async def test_pods_that_wait_are_named_and_can_be_deleted(sliced, stage):
    await stage.node()
    await stage.create(pod("runs"), pod("waits", "7g.40gb", schedulingGates=[{"name": "example.com/first"}]))
    await stage.running("runs")
    _, errors, code = await shell(sliced, "instaslice drained")
    assert code == 1
    assert f"pod {stage.namespace}/waits: waits for slices" in errors.splitlines()
    assert "1 pod waits behind the gate gpu.das.com/slice" in errors
    (command,) = re.findall(r"^\$ (kubectl get pods .* \| xargs .*)$", OPERATIONS.read_text(), re.MULTILINE)
    out, errors, code = await shell(sliced, command)
    assert (errors, code) == ("", 0)
    assert out.startswith('pod "waits"') and len(out.splitlines()) == 1
    await stage.gone("waits")
    assert stage.pod("runs").status.phase == "Running"
    await stage.delete("runs")
    await stage.gone("runs")
    await stage.free()
    out, errors, code = await shell(sliced, "instaslice drained")
    assert (out, errors, code) == ("no pod holds a slice or waits for one\n", "", 0)
