"""What tests of every kind share."""

import functools
import http.server
import socket
import threading

import pytest

# Two lanes (`make test`) -----------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from blocks import block
    from xdist.scheduler import LoadScopeScheduling

    class Blocks(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return block(nodeid)

    config.option.loadscopereorder = False  # not by the number of tests, but as they are sorted below
    return Blocks(config, log)


def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        from blocks import rank

        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A lane that is interrupted has ten seconds to end its clusters, and none when it crashes."""
    if session.config.pluginmanager.has_plugin("dsession"):
        import leftovers

        leftovers.remove()


def pytest_terminal_summary(terminalreporter):
    """What tests have to say although they passed: `record_property("told", "...")`."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "told":
                terminalreporter.write_line(f"{report.nodeid}: {value}")


# Fixtures --------------------------------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        return


@pytest.fixture
def serve():
    """Serves folders on loopback: `serve(folder)` gives the address."""
    servers = []

    def start(folder):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        # It looks for its end that often.
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def nobody():
    """An address, with its port, on which nobody listens, and which nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
