"""The pod that stands for a waiting one before a node autoscaler."""

import msgspec
import pytest
from fitting import affinity, container, pod, term, towards

from instaslice.controller.placeholders import placeholder
from instaslice.kube.core import Pod

SLICE = {"gpu.das.com/mig-1g.5gb": "2", "gpu.das.com/mem": "10"}
TOLERATION = {"key": "gpu.das.com/managed", "operator": "Exists", "effect": "NoSchedule"}


def made(*containers, memory=0, **spec):
    return placeholder(pod(*containers, **spec), "ours", memory)


def asked(manifest):
    return manifest["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    "containers, memory, requests",
    [
        pytest.param(
            [container(cpu="500m", memory="1Gi", **SLICE)],
            0,
            {"cpu": "500m", "memory": str(2**30), "gpu.das.com/mig-1g.5gb": "2", "gpu.das.com/mem": "10"},
            id="what the pod asks for",
        ),
        pytest.param(
            [container("a", cpu="1", **SLICE), container("b", cpu="1", **SLICE)],
            0,
            {"cpu": "2000m", "gpu.das.com/mig-1g.5gb": "4", "gpu.das.com/mem": "20"},
            id="containers together",
        ),
        pytest.param(
            [container(**SLICE)],
            80,
            {"gpu.das.com/mig-1g.5gb": "2", "gpu.das.com/mem": "80"},
            id="all GPU memory of a node, so that no node in use will do",
        ),
        pytest.param(
            [container(**SLICE)],
            5,
            {"gpu.das.com/mig-1g.5gb": "2", "gpu.das.com/mem": "10"},
            id="never less than the pod",
        ),
    ],
)
def test_what_it_asks_for(containers, memory, requests):
    assert asked(made(*containers, memory=memory))["requests"] == requests


def test_devices_stand_in_limits_too_and_cpu_does_not():
    resources = asked(made(container(**{"cpu": "1", "hugepages-2Mi": "4Mi", "gpu.das.com/mig-1g.5gb": "1"})))
    assert resources["limits"] == {"hugepages-2Mi": str(4 * 2**20), "gpu.das.com/mig-1g.5gb": "1"}


def test_it_goes_where_the_pod_would():
    where = {
        "nodeSelector": {"zone": "a"},
        "affinity": affinity([("gpu", "In", "a100")]),
        "tolerations": [TOLERATION],
    }
    spec = made(container(), **where)["spec"]
    assert {field: spec[field] for field in where} == where
    plain = made(container())["spec"]
    assert not plain.keys() & where.keys()


def test_the_strictest_pod_security_lets_it_in():
    """A namespace that enforces `restricted` refuses pods that do not say all of this."""
    context = made(container())["spec"]["containers"][0]["securityContext"]
    assert (context["allowPrivilegeEscalation"], context["runAsNonRoot"]) == (False, True)
    assert (context["capabilities"], context["seccompProfile"]) == ({"drop": ["ALL"]}, {"type": "RuntimeDefault"})


def test_what_a_pod_wants_of_other_pods_is_not_said_of_its_placeholder():
    """It would be said of pods of our namespace, and keep others away from where the placeholder is."""
    both = {**affinity([("gpu", "In", "a100")]), **towards("podAntiAffinity", term(app="a"))["affinity"]}
    assert made(container(), affinity=both)["spec"]["affinity"] == affinity([("gpu", "In", "a100")])
    assert "affinity" not in made(container(), **towards("podAffinity", term(app="a")))["spec"]


def test_it_is_no_pod_of_ours():
    """It would be gated, and counted, if it were; and it must not be able to do anything."""
    manifest = made(container(**SLICE), schedulingGates=[{"name": "gpu.das.com/slice"}])
    assert not msgspec.convert(manifest, Pod).spec.scheduling_gates
    assert manifest["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "other, same",
    [
        pytest.param(made(container(cpu="1", **SLICE)), True, id="the same again"),
        pytest.param(made(container(cpu="1000m", **SLICE)), True, id="the same in other words"),
        pytest.param(made(container(cpu="2", **SLICE)), False, id="more CPU"),
        pytest.param(made(container(cpu="1", **SLICE), nodeSelector={"zone": "a"}), False, id="another place"),
        pytest.param(made(container(cpu="1", **SLICE), memory=40), False, id="another shape of node"),
    ],
)
def test_pods_of_one_shape_share_one(other, same):
    one = made(container(cpu="1", **SLICE))
    assert (one["metadata"]["name"] == other["metadata"]["name"]) == same
