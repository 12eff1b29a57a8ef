"""What `controller`, `webhook` and `agent` refuse before they ask any server."""

import pytest
from click.testing import CliRunner

from instaslice.cli import agent, controller, webhook

NOWHERE = ["--kubeconfig", "/nowhere"]


def refused(command, *words):
    """What stands behind `Error:`; no request is made, as there is no server."""
    done = CliRunner().invoke(command, [*words, *NOWHERE])
    assert done.exit_code == 2, done.output
    return done.output.partition("Error: ")[2]


@pytest.mark.parametrize(
    "command, words, message",
    [
        pytest.param(
            agent.command,
            ["--emulated", "--node", "x", "--model", "foo"],
            "Invalid value for '--model': no GPU model 'foo'. Known are A30, A100-40GB",
            id="a model that nobody knows",
        ),
        pytest.param(
            agent.command,
            ["--emulated", "--node", "x", "--model", "A100"],
            "did you mean A100-40GB, A100-80GB",
            id="a model that is two",
        ),
        pytest.param(
            webhook.command,
            ["--model", "A100-40GB", "--model", "H2O"],
            "Invalid value for '--model': no GPU model 'H2O'",
            id="one of several",
        ),
        pytest.param(
            agent.command,
            ["--emulated", "--node", "x", "--model", "Thor-iGPU"],
            "Invalid value for '--model': the placements of Thor-iGPU are not published",
            id="a model that only its driver knows",
        ),
        pytest.param(
            agent.command,
            ["--node", "x", "--model", "A30"],
            "--model would have no effect without --emulated; add --emulated, or leave --model out",
            id="a model of real GPUs",
        ),
        pytest.param(
            controller.command,
            ["--namespace", ""],
            "Invalid value for '--namespace': '' is no name of an object",
            id="an empty namespace",
        ),
        pytest.param(controller.command, ["--namespace", "a.b"], "1 to 63 lower-case letters", id="no namespace"),
        pytest.param(agent.command, ["--node", "Gpu_0"], "Invalid value for '--node': 'Gpu_0'", id="no node"),
        pytest.param(agent.command, ["--node", "a" * 64], "is no name", id="a node with too long a name"),
        pytest.param(webhook.command, ["--secret", "a/b/c"], "for --secret: write it NAMESPACE/NAME", id="three parts"),
        pytest.param(
            webhook.command, ["--secret", "A/b"], "for --secret: 'A' is no name", id="a Secret of no namespace"
        ),
        pytest.param(webhook.command, ["--secret", "a/b_c"], "for --secret: 'b_c' is no name", id="no Secret"),
        pytest.param(webhook.command, ["--service", "a/b"], "for '--service': 'a/b' is no name", id="no Service"),
        pytest.param(
            agent.command,
            ["--emulated", "--state-dir", "/dev/null"],
            "Invalid value for --state-dir: /dev/null cannot be a folder: file exists; give",
            id="a state folder that is a device",
        ),
        pytest.param(
            agent.command,
            ["--node", "x", "--emulated", "--state-dir", "/proc/foo"],
            "Invalid value for --state-dir: /proc/foo cannot be a folder: no such file or directory; give",
            id="a state folder that cannot be made",
        ),
    ],
)
def test_what_is_refused_at_once(command, words, message):
    assert message in refused(command, *words)


@pytest.mark.parametrize(
    "words, flag, other",
    [
        (["--emulated", "--gpus", "0"], "--gpus", "beside --emulated"),
        (["--emulated", "--enable-mig"], "--enable-mig", "beside --emulated"),
        (["--emulated", "--node", "x", "--driver-spec", "y"], "--driver-spec", "beside --emulated"),
        (["--node", "x", "--nodes", "a=b"], "--nodes", "beside --node"),
        (["--emulated", "--count", "1"], "--count", "without --model"),
        (["--node", "x", "--latency", "h200"], "--latency", "without --emulated"),
        (["--emulated", "--cdi-dir", "x"], "--cdi-dir", "without --node"),
    ],
)
def test_a_flag_of_the_agent_without_effect_is_refused(words, flag, other):
    assert f"{flag} would have no effect {other}; " in refused(agent.command, *words)


@pytest.mark.parametrize(
    "command, words",
    [
        pytest.param(agent.command, ["--emulated", "--node", "gpu-0.example.com"], id="a node in a domain"),
        pytest.param(agent.command, ["--emulated", "--nodes", "a=b", "--model", "h200"], id="a model in lower case"),
        pytest.param(agent.command, ["--emulated", "--node", "x", "--model", "A30", "--count", "2"], id="all of it"),
        pytest.param(controller.command, ["--namespace", "instaslice-2"], id="a namespace"),
    ],
)
def test_what_is_not(command, words, tmp_path):
    state = ["--state-dir", str(tmp_path)] if command is agent.command else []
    done = CliRunner().invoke(command, [*words, *state, *NOWHERE])
    assert "give a file that exists with --kubeconfig" in str(done.exception), done.output
