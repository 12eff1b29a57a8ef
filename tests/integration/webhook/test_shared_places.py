"""A real API server and others share fewer places than they would keep connections: none of its requests is lost."""

import asyncio
import ssl

import workloads
from workloads import SLICE, pod

from instaslice.observe import connections

PLACES = 8
IDLE = 4
BURST = 12
ROUNDS = 6


async def test_an_api_server_that_shares_few_places_with_others_loses_no_request(
    client, register, namespace, monkeypatch
):
    monkeypatch.setattr(connections, "MOST", PLACES)
    monkeypatch.setattr(connections, "MOST_IDLE", IDLE)
    async with register() as hook:

        async def pods(number):
            made = [pod(namespace, f"train-{number}-{index}", SLICE) for index in range(BURST)]
            await asyncio.gather(*(workloads.create(client, each, dry_run=True) for each in made))

        open_ones = []
        for number in range(ROUNDS):
            await pods(number)
            # Others would keep as many: together more than there are places.
            open_ones += [await _answered_once(hook.port) for _ in range(PLACES)]
        assert hook.webhook.answered["changed"] == ROUNDS * BURST
        for writer in open_ones:
            writer.close()


async def _answered_once(port):
    """A connection of another API server, which would keep it."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=unverified, local_addr=("127.0.0.2", 0))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 404")
    return writer
