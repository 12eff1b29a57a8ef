"""`instaslice kueue manifests`: what it prints, and what it refuses."""

import json

import pytest
import yaml
from click.testing import CliRunner

from instaslice.cli.kueue import manifests
from instaslice.cli.kueue.manifests import available
from instaslice.errors import BadInput
from instaslice.kube.core import Node, NodeStatus
from instaslice.kube.meta import ObjectMeta
from instaslice.kueue.configuration import configuration

QUOTA = ("--gb", "50", "--cpu", "64", "--memory", "256Gi")


def run(*words, told=None):
    return CliRunner().invoke(manifests.command, words, input=told)


def printed(*words, told=None):
    done = run(*words, told=told)
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


def kinds(documents):
    return [each["kind"] for each in documents]


QUEUES = ["ResourceFlavor", "ClusterQueue", "LocalQueue"]
POLICY = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]


def test_a_queue_covers_cpu_memory_and_gpu_memory():
    documents = printed(*QUOTA)
    assert kinds(documents) == QUEUES + POLICY
    (group,) = documents[1]["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", "gpu.das.com/mem"]
    assert {each["name"]: each["nominalQuota"] for each in group["flavors"][0]["resources"]} == {
        "cpu": "64",
        "memory": "256Gi",
        "gpu.das.com/mem": "50",
    }
    assert "cohortName" not in documents[1]["spec"]


def test_every_name_can_be_chosen_and_each_namespace_has_a_local_queue():
    names = ("--queue", "team", "--local-queue", "train", "--flavor", "a100", "-n", "a", "-n", "b", "--cohort", "all")
    flavor, queue, *local = printed(*QUOTA, *names)[:4]
    assert flavor["metadata"]["name"] == queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] == "a100"
    assert queue["metadata"]["name"] == "team"
    assert queue["spec"]["cohortName"] == "all"
    assert [each["metadata"] for each in local] == [{"name": "train", "namespace": each} for each in "ab"]
    assert {each["spec"]["clusterQueue"] for each in local} == {"team"}


def test_a_queue_with_an_admission_check_of_ours_has_it_before_it():
    documents = printed(*QUOTA, "--admission-check", "slices")
    assert kinds(documents) == ["ResourceFlavor", "AdmissionCheck", "ClusterQueue", "LocalQueue", *POLICY]
    assert documents[1]["metadata"]["name"] == "slices"
    assert documents[1]["spec"] == {"controllerName": "gpu.das.com/placement"}
    assert documents[2]["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "slices"}]}


def test_in_json_they_are_one_list_as_kubectl_reads_it():
    listed = json.loads(run(*QUOTA, "-o", "json").output)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert kinds(listed["items"]) == QUEUES + POLICY


def test_the_configuration_is_printed_apart():
    assert printed("--config") == [configuration()]
    assert json.loads(run("--config", "-o", "json").output) == configuration()
    assert len(printed("--config", "--model", "A30")[0]["resources"]["transformations"]) == 6


def test_it_is_merged_into_a_file_or_into_what_comes_in(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("kind: Configuration\nleaderElection: {leaderElect: true}\n")
    expected = {
        "kind": "Configuration",
        "leaderElection": {"leaderElect": True},
        "resources": configuration()["resources"],
    }
    assert printed("--merge", str(file)) == [expected]
    assert printed("--merge", "-", told=file.read_text()) == [expected]


@pytest.mark.parametrize(
    "words, told",
    [
        pytest.param(["--gb", "-1"], "-1 is not in the range", id="less than no memory"),
        pytest.param(["--gb", "40Gi"], "'40Gi' is not a valid integer", id="an amount with a suffix"),
        pytest.param(["--cpu", "many"], "'many' is not a quantity; write a number like 2", id="no quantity"),
        pytest.param(["--memory=-1Gi"], "less than nothing", id="less than no memory of the node"),
        pytest.param(["--queue", "Team_A"], "is no name of an object", id="no name"),
        pytest.param(["--config", "--model", "A3000"], "no GPU model 'A3000'; did you mean", id="no model"),
        pytest.param(["--config", "--gb", "5"], "--gb would have no effect beside --config", id="a void quota"),
        pytest.param(["--model", "A30"], "would have no effect without --config", id="a void model"),
        pytest.param(["--merge", "none.yaml"], "No such file", id="no file"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(words, told):
    done = run(*words)
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())


@pytest.mark.parametrize(
    "text, told",
    [
        pytest.param("kind: [", "is no YAML", id="no YAML"),
        pytest.param(
            "kind: ConfigMap", "is not Kueue's configuration (kind: Configuration); it stands in", id="the ConfigMap"
        ),
        pytest.param("", "is not Kueue's configuration", id="nothing"),
        pytest.param("\x00", "is no YAML", id="no text"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_with_the_remedy(text, told):
    refused = run("--merge", "-", told=text).exception
    assert isinstance(refused, BadInput)
    assert told in str(refused)


def node(name, **allocatable):
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable=allocatable))


def test_the_quota_is_what_the_nodes_with_slices_have():
    first = node("a", cpu="63500m", memory="64Gi", **{"gpu.das.com/mem": "80"})
    second = node("b", cpu="64", memory="65011712Ki", **{"gpu.das.com/mem": "143"})
    other = node("c", cpu="128", memory="1Ti")
    assert available([first, second, other]).by_resource == {
        "cpu": "127500m",
        "memory": "126Gi",
        "gpu.das.com/mem": "223",
    }


def test_without_such_nodes_there_is_nothing_to_give_out():
    with pytest.raises(BadInput, match=r"no node advertises gpu.das.com/mem.*say --gb, --cpu and --memory yourself"):
        available([node("c", cpu="128")])
