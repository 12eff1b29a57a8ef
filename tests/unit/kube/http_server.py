"""A server that says exactly what a test has it say."""

import asyncio
import contextlib

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next of `says`, `OK` after the last; a callable takes over the connection."""

    def __init__(self, *says):
        self.says = list(says)
        self.heard = []
        self.connections = 0
        self.open = 0

    async def talk(self, reader, writer):
        self.connections += 1
        self.open += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
                self.heard.append(head + await reader.readexactly(int(lengths[0]) if lengths else 0))
                words = self.says.pop(0) if self.says else OK
                if callable(words):
                    await words(reader, writer)
                    break
                writer.write(words)
                await writer.drain()
                if b"Connection: close" in words:
                    break
        writer.close()
        self.open -= 1


@contextlib.asynccontextmanager
async def listening(server, context=None):
    """Its port."""
    async with await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=context) as opened:
        yield opened.sockets[0].getsockname()[1]
