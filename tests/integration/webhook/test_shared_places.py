"""A real API server and others share fewer places than they would keep connections: none of its requests is lost."""

import asyncio
import ssl

import workloads
from workloads import SLICE, pod

from instaslice.observe import connections

PLACES = 4
ROUNDS = 12


async def test_an_api_server_whose_idle_connections_are_ended_for_others_is_refused_nothing(
    client, register, namespace, monkeypatch
):
    monkeypatch.setattr(connections, "MOST", PLACES)
    async with register() as hook:

        async def pods(number):
            made = [pod(namespace, f"train-{number}-{index}", SLICE) for index in range(2 * PLACES)]
            await asyncio.gather(*(workloads.create(client, each, dry_run=True) for each in made))

        open_ones = []
        for number in range(ROUNDS):
            await pods(number)
            # Each takes the place of a connection that the API server has kept for its next request.
            open_ones += [await _answered_once(hook.port) for _ in range(PLACES)]
        assert hook.webhook.answered["changed"] == ROUNDS * 2 * PLACES
        for writer in open_ones:
            writer.close()


async def _answered_once(port):
    """An idle connection of another API server."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=unverified, local_addr=("127.0.0.2", 0))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 404")
    return writer
