"""Where metrics and health are served, as a user writes it."""

import click
import pytest
from click.testing import CliRunner

from instaslice.cli import agent, controller, webhook
from instaslice.cli.terminal.observing import PORTS, ListenAddress
from instaslice.observe.endpoints import Address


@pytest.mark.parametrize(
    "text, address, again",
    [
        pytest.param("127.0.0.1:9510", ("127.0.0.1", 9510), "127.0.0.1:9510", id="an address"),
        pytest.param(":9510", ("", 9510), ":9510", id="every address"),
        pytest.param("[::1]:9510", ("::1", 9510), "[::1]:9510", id="IPv6"),
        pytest.param("localhost:0", ("localhost", 0), "localhost:0", id="a free port"),
    ],
)
def test_an_address(text, address, again):
    found = ListenAddress().convert(text, None, None)
    assert found == Address(*address)
    assert str(found) == again


def test_nowhere():
    assert ListenAddress().convert("", None, None) is None


@pytest.mark.parametrize("text", ["9510", "localhost", "::1:9510", "127.0.0.1:65536", "127.0.0.1:", "a:b", "[::1:9"])
def test_what_is_no_address(text):
    with pytest.raises(click.BadParameter, match="is not HOST:PORT"):
        ListenAddress().convert(text, None, None)


def test_the_three_processes_have_three_ports():
    commands = {"controller": controller.command, "webhook": webhook.command, "agent": agent.command}
    for component, port in PORTS.items():
        (option,) = [each for each in commands[component].params if each.name == "observe"]
        assert option.default == f"127.0.0.1:{port}"
    assert len(set(PORTS.values())) == 3


def test_a_job_mapping_is_of_one_node():
    words = ["--emulated", "--dcgm-job-mapping-dir", "/tmp/jobs", "--kubeconfig", "/nowhere"]
    done = CliRunner().invoke(agent.command, words)
    assert (done.exit_code, "would have no effect without --node" in done.output) == (2, True)
