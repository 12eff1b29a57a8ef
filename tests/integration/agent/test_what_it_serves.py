"""What an agent says of the nodes that it was told to serve."""

import asyncio
import sys

import pytest


async def words_of(kubeconfig, *flags, until="", seconds=60):
    """What `instaslice agent --emulated` prints up to these words, or to its end; and its exit code, None if it ran."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "instaslice.cli",
            "agent",
            "--emulated",
            "--observe",
            "",
            "--kubeconfig",
            str(kubeconfig),
            *flags,
        ),
        stderr=asyncio.subprocess.STDOUT,
        stdout=asyncio.subprocess.PIPE,
    )
    said = ""
    try:
        async with asyncio.timeout(seconds):
            async for line in process.stdout:
                said += line.decode()
                if until and until in said:
                    return said, None
            return said, await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("selector", ["!!", "a=b,,", "a in ("])
async def test_a_selector_that_the_server_cannot_read_ends_the_agent(cluster, defined, selector):
    said, code = await words_of(cluster.kubeconfig, "--nodes", selector)
    assert code == 2
    assert "Invalid value for --nodes: the API server refuses it: list nodes: 400 BadRequest" in said


async def test_a_node_that_is_not_there_yet_is_named(cluster, defined, tmp_path):
    flags = ["--node", "nowhere", "--state-dir", str(tmp_path / "state"), "--cdi-dir", str(tmp_path / "cdi")]
    flags += ["--kubelet-dir", str(tmp_path / "kubelet")]
    said, _ = await words_of(cluster.kubeconfig, *flags, until="as soon as there is one")
    assert "no node nowhere yet" in said


async def test_labels_that_no_node_has_yet_are_named(cluster, defined):
    said, _ = await words_of(cluster.kubeconfig, "--nodes", "team=none", until="as soon as there is one")
    assert "no node with labels team=none yet" in said
