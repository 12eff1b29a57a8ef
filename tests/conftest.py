"""What tests of every kind share."""

import functools
import http.server
import socket
import threading

import pytest


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        return


@pytest.fixture
def serve():
    """Serves folders on loopback: `serve(folder)` gives the address."""
    servers = []

    def start(folder):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def nobody():
    """An address on which nobody listens, and which nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
