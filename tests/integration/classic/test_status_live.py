"""`instaslice status` on a real cluster: who holds what, who waits, what may not be read, and every change."""

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from stage import PATIENCE, pod
from waiting import until

from instaslice.kube.core import NODES
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key

STATUS = (sys.executable, "-m", "instaslice.cli", "status")


async def status(kubeconfig, *words):
    """Output, errors and exit code."""
    arguments = [*STATUS, "--kubeconfig", str(kubeconfig), *words]
    async with asyncio.timeout(PATIENCE):
        process = await asyncio.create_subprocess_exec(*arguments, stdout=-1, stderr=-1)
        out, errors = await process.communicate()
    return out.decode(), errors.decode(), process.returncode


@contextlib.asynccontextmanager
async def watching(kubeconfig, *words):
    """Lines of `--watch` as they come: `await line("text")` reads on to the next that has it."""
    arguments = [*STATUS, "--watch", "--kubeconfig", str(kubeconfig), *words]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=-1, stderr=-1, limit=1 << 24)

    async def line(text):
        async with asyncio.timeout(PATIENCE):
            while found := (await process.stdout.readline()).decode():
                if text in found:
                    return found
        raise AssertionError(f"ended before {text!r}: {(await process.stderr.read()).decode()}")

    try:
        yield line, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_who_holds_what_and_who_waits(sliced, stage):
    node = await stage.node()
    await stage.create(pod("small"))
    await stage.running("small")
    await stage.create(pod("whale", "7g.40gb"))
    await stage.waits("whale")

    text, _, code = await status(sliced.kubeconfig, "--node", node)
    assert code == 0
    assert text.startswith("1 node, 1 GPU: 1 slice held; 35 of 40 GB free")
    assert "fits " in text.splitlines()[2]
    assert ", 35 GB free" in text.splitlines()[2]
    (whale,) = [line for line in text.splitlines() if f"{stage.namespace}/whale" in line]
    assert "waiting for room" in whale
    assert "room for 7g.40gb, but no such node admits the pod" in whale

    told = msgspec.json.decode((await status(sliced.kubeconfig, "-o", "json"))[0])
    (mine,) = [each for each in told["nodes"] if each["name"] == node]
    (slot,) = mine["gpus"][0]["slots"]
    assert (slot["pod"], slot["profile"], slot["state"]) == (f"{stage.namespace}/small", "1g.5gb", "created")
    assert (
        slot["mig_uuid"] == stage.pods.get(Key(stage.namespace, "small")).metadata.annotations["gpu.das.com/mig-uuids"]
    )
    (waits,) = [each for each in told["waiting"] if each["pod"] == f"{stage.namespace}/whale"]
    assert (waits["position"], waits["stage"]) == (1, "waiting for room")
    same = yaml.safe_load((await status(sliced.kubeconfig, "-o", "yaml"))[0])
    assert same["waiting"] == told["waiting"]


async def test_every_change_is_a_line_until_it_is_interrupted(sliced, stage):
    node = await stage.node()
    async with watching(sliced.kubeconfig, "--node", node) as (line, process):
        await line(f"GPU 0 of {node}: 40 GB free, fits 7g.40gb")
        await stage.create(pod("small"))
        assert f"for pod {stage.namespace}/small" in await line("created")
        await stage.delete("small")
        await line(f"GPU 0 of {node}: 40 GB free, fits 7g.40gb")
        await stage.client.merge(NODES, Key("", node), {"spec": {"unschedulable": True}})
        await line(f"node {node}: cordoned")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
        assert (await process.stderr.read()) == b""


async def test_documents_follow_each_other_one_per_line(sliced, stage):
    node = await stage.node()
    async with watching(sliced.kubeconfig, "--node", node, "-o", "json") as (line, _):
        assert msgspec.json.decode(await line("{"))["slots"] == {}
        await stage.create(pod("small"))
        assert msgspec.json.decode(await line('"state":"created"'))["slots"] == {"created": 1}


async def test_an_unknown_node_is_answered_with_those_that_are_near(sliced):
    text, errors, code = await status(sliced.kubeconfig, "--node", "gpu-O")
    assert (text, code) == ("", 1)
    assert errors.startswith("error: no node gpu-O has an Instaslice object; did you mean gpu-")


@pytest.fixture
def reader(sliced, client, namespace, tmp_path):
    """A kubeconfig of a user who may list these resources, in all namespaces."""

    async def made(*resources):
        roles = "/apis/rbac.authorization.k8s.io/v1"
        name = f"{namespace}-reader"
        rule = {"apiGroups": ["", "gpu.das.com"], "resources": [*resources], "verbs": ["list", "watch"]}
        role = {"metadata": {"name": name}, "rules": [rule]}
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
        if resources:
            await client.raw("POST", f"{roles}/clusterroles", body=msgspec.json.encode(role))
            await client.raw("POST", f"{roles}/clusterrolebindings", body=msgspec.json.encode(binding))
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        await until(lambda: exists(client, accounts), 30, "the account")
        body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}'
        token = msgspec.json.decode(await client.raw("POST", f"{accounts}/token", body=body))["status"]["token"]
        config = yaml.safe_load(sliced.kubeconfig.read_text())
        config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        return tmp_path / "kubeconfig"

    return made


async def exists(client, path):
    try:
        return await client.raw("GET", path)
    except NotFound:
        return None


async def test_what_may_not_be_read_is_named_and_the_rest_shown(stage, reader):
    node = await stage.node()
    await stage.create(pod("small"))
    await stage.running("small")
    file = await reader("instaslices", "nodes")
    text, errors, code = await status(file, "--node", node)
    assert (errors, code) == ("", 0)
    assert f"{stage.namespace}/small" in text
    assert "missing   pods may not be listed, so who waits and since when slots are held are not shown" in text
    async with watching(file, "--node", node) as (line, _):
        await line(f"GPU 0 of {node}: 35 GB free")
        await stage.delete("small")
        await line(f"GPU 0 of {node}: 40 GB free")


async def test_who_may_read_nothing_is_told_so_and_what_to_grant_works(sliced, client, reader):
    file = await reader()
    text, errors, code = await status(file)
    assert (text, code) == ("", 1)
    assert errors.startswith("error: list ")
    assert "403 Forbidden" in errors
    commands = re.findall(r"`kubectl ([^`]*)`", errors)
    assert len(commands) == 2
    env = {"HOME": os.environ["HOME"], "KUBECONFIG": str(sliced.kubeconfig)}
    try:
        for command in commands:
            program = await asyncio.create_subprocess_exec(
                sliced.record().programs["kubectl"], *shlex.split(command), stdout=-1, env=env
            )
            async with asyncio.timeout(PATIENCE):
                await program.communicate()
            assert program.returncode == 0, command
        text, errors, code = await status(file)
        assert (errors, code) == ("", 0)
        assert "missing" not in text
    finally:
        for kind, command in zip(("clusterroles", "clusterrolebindings"), commands, strict=True):
            name = shlex.split(command)[2]
            with contextlib.suppress(NotFound):
                await client.raw("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")


@pytest.mark.parametrize("words", [[], ["--watch"]], ids=["once", "watch"])
async def test_an_api_server_that_does_not_answer_is_an_error(sliced, tmp_path, nobody, words):
    config = yaml.safe_load(sliced.kubeconfig.read_text())
    for each in config["clusters"]:
        each["cluster"]["server"] = f"https://{nobody}"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    text, errors, code = await status(tmp_path / "kubeconfig", *words)
    assert (text, code) == ("", 1)
    assert f"no answer from https://{nobody}" in errors


async def test_kubectl_runs_and_completes_it_as_its_plugin(sliced, stage):
    node = await stage.node()
    await stage.create(pod("small"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": os.environ["HOME"], "KUBECONFIG": str(sliced.kubeconfig)}

    async def kubectl(*words):
        async with asyncio.timeout(PATIENCE):
            program = sliced.record().programs["kubectl"]
            process = await asyncio.create_subprocess_exec(program, *words, stdout=-1, env=env)
            return (await process.communicate())[0].decode()

    assert (await kubectl("instaslice", "status", "--node", node)).startswith("1 node, 1 GPU:")
    assert (await kubectl("__complete", "instaslice", "stat")).startswith("status\tShow the fleet")
    assert node in (await kubectl("__complete", "instaslice", "status", "--node", node[:-2])).splitlines()
    names = await kubectl("__complete", "instaslice", "explain", "-n", stage.namespace, "pod/")
    assert names.splitlines()[0] == "pod/small"
