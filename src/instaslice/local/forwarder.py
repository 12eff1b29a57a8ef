"""Carries TCP connections from a real node's bridge to the API server, which listens on loopback alone.

Run as a process of the cluster: `python -m instaslice.local.forwarder ADDRESS PORT`; the port is the same on both
sides. Without it no pod could reach the API server: there is no kube-proxy, and pods have a loopback of their own.
"""

import asyncio
import sys
from contextlib import suppress

CHUNK = 1 << 16


async def forward(address: str, port: int) -> None:
    """Until cancelled."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            # The client sees what it would see without us: a connection that is refused.
            writer.transport.abort()
            return
        await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))

    server = await asyncio.start_server(connected, address, port)
    async with server:
        await server.serve_forever()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
    # The other direction ends by itself: whoever hears no more says no more, or finds the connection closed.
    target.close()


if __name__ == "__main__":
    asyncio.run(forward(sys.argv[1], int(sys.argv[2])))
