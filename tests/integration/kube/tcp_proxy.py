"""A TCP relay in front of the API server that can be cut, or can fall silent as a half-open connection does."""

import asyncio
from urllib.parse import urlsplit

import yaml


class Proxy:
    def __init__(self, kubeconfig, folder):
        content = yaml.safe_load(kubeconfig.read_text())
        self._cluster = content["clusters"][0]["cluster"]
        self._content = content
        self._upstream = urlsplit(self._cluster["server"])
        self._pipes = set()
        self._refuse = False
        self._frozen = set()
        self.kubeconfig = folder / "through-proxy"

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._cluster["server"] = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(yaml.safe_dump(self._content))
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self._hang_up()

    def cut(self):
        """End every connection and take none."""
        self._refuse = True
        self._hang_up()

    def mend(self):
        self._refuse = False

    def fall_silent(self):
        """Forward nothing more on the connections there are, and do not close them; new ones work."""
        self._frozen |= self._pipes

    def _hang_up(self):
        for writer in list(self._pipes):
            writer.transport.abort()
        self._pipes.clear()

    async def _accept(self, reader, writer):
        if self._refuse:
            writer.transport.abort()
            return
        try:
            back, forth = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        except OSError:
            writer.transport.abort()
            return
        self._pipes |= {writer, forth}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relay(reader, forth))
            group.create_task(self._relay(back, writer))

    async def _relay(self, reader, writer):
        try:
            while chunk := await reader.read(2**16):
                if writer not in self._frozen:
                    writer.write(chunk)
                    await writer.drain()
        except OSError:
            pass  # one side hung up: so do we
        if writer not in self._frozen:
            writer.transport.abort()
