"""Kubelets that come, go and start anew, and plugins that cannot be had: who is told again, and what people read."""

import asyncio

import pytest

from instaslice.agent.kubelet import registration

TURNS = 20


class Told:
    """A plugin that notes what is done to it."""

    def __init__(self, resource):
        self.resource, self.socket_removed, self.fails = resource, False, None
        self.starts = self.stops = 0

    async def start(self):
        self.starts += 1
        self.socket_removed = False
        if self.fails:
            raise self.fails

    async def stop(self):
        self.stops += 1


@pytest.fixture
async def world(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(registration.log, "warning", lambda text, *words: said.append(text % words))
    monkeypatch.setattr(registration, "CHECK_SECONDS", 0)
    monkeypatch.setattr(registration, "RETRY_SECONDS", 0)
    plugins = [Told("one"), Told("two")]
    task = asyncio.create_task(registration.keep(tmp_path, plugins))
    yield tmp_path / "kubelet.sock", plugins, said, task
    task.cancel()
    await asyncio.wait([task])


async def turns():
    for _ in range(TURNS):
        await asyncio.sleep(0)


def missed(said):
    return sum("no kubelet at" in each for each in said)


async def test_a_kubelet_is_told_once_and_one_that_is_away_is_missed_once_each_time(world):
    socket, plugins, said, _ = world
    await turns()
    assert (missed(said), [each.starts for each in plugins]) == (1, [0, 0])
    socket.touch()
    await turns()
    assert [each.starts for each in plugins] == [1, 1]
    socket.unlink()
    await turns()
    assert missed(said) == 2
    socket.with_name("other").touch()
    socket.touch()
    await turns()
    assert [each.starts for each in plugins] == [2, 2], "it is another kubelet"


async def test_a_plugin_whose_socket_was_taken_away_has_all_of_them_told_again(world):
    socket, plugins, _, _ = world
    socket.touch()
    await turns()
    plugins[1].socket_removed = True
    await turns()
    assert [each.starts for each in plugins] == [2, 2]


@pytest.mark.parametrize("error", [OSError("too long a path"), RuntimeError("no port")])
async def test_a_plugin_that_cannot_be_had_is_tried_again_and_those_after_it_wait(world, error):
    socket, plugins, said, _ = world
    plugins[0].fails = error
    socket.touch()
    await turns()
    assert plugins[0].starts > 1 and plugins[1].starts == 0
    assert f"one cannot be registered with the kubelet: {error}" in said[1]
    plugins[0].fails = None
    await turns()
    assert plugins[1].starts == 1
    assert plugins[0].stops == plugins[0].starts, "what was begun is ended before it begins again"


async def test_every_plugin_is_stopped_at_the_end(world):
    socket, plugins, _, task = world
    socket.touch()
    await turns()
    before = [each.stops for each in plugins]
    task.cancel()
    await asyncio.wait([task])
    assert [each.stops for each in plugins] == [each + 1 for each in before]
