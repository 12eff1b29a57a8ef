"""Which nodes let a pod in, and the words for those that do not."""

import pytest
from fitting import affinity, container, node, pod

from instaslice.controller.node_admission import refusal

GPU = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "a", "effect": "NoExecute"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "state, spec, words",
    [
        pytest.param({}, {}, None, id="a plain pod on a plain node"),
        pytest.param({"ready": False}, {}, "is not ready", id="not ready"),
        pytest.param(
            {"ready": False}, {"tolerations": [{"operator": "Exists"}]}, "is not ready", id="not ready is not tolerated"
        ),
        pytest.param({"unschedulable": True}, {}, "is cordoned", id="cordoned"),
        pytest.param({"unschedulable": True, "taints": [CORDON]}, {}, "is cordoned", id="cordoned, and tainted for it"),
        pytest.param(
            {"unschedulable": True, "taints": [CORDON]},
            {"tolerations": [{"key": CORDON["key"], "operator": "Exists"}]},
            None,
            id="the cordon is tolerated",
        ),
        pytest.param({"taints": [GPU]}, {}, "is tainted nvidia.com/gpu:NoSchedule", id="tainted"),
        pytest.param({"taints": [TEAM]}, {}, "is tainted team=a:NoExecute", id="a taint with a value"),
        pytest.param({"taints": [{**GPU, "effect": "PreferNoSchedule"}]}, {}, None, id="a preference is no bar"),
        pytest.param(
            {"taints": [GPU, TEAM]},
            {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
            "is tainted team=a:NoExecute",
            id="one of two is tolerated",
        ),
        pytest.param({"taints": [TEAM]}, {"tolerations": [{"key": "team", "value": "a"}]}, None, id="equal by default"),
        pytest.param(
            {"taints": [TEAM]},
            {"tolerations": [{"key": "team", "value": "b"}]},
            "is tainted team=a:NoExecute",
            id="another value",
        ),
        pytest.param(
            {"taints": [TEAM]},
            {"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}]},
            "is tainted team=a:NoExecute",
            id="another effect",
        ),
        pytest.param(
            {"taints": [GPU, TEAM]}, {"tolerations": [{"operator": "Exists"}]}, None, id="everything tolerated"
        ),
        pytest.param(
            {"taints": [TEAM]},
            {"tolerations": [{"key": "team", "operator": "Gt", "value": "1"}]},
            "is tainted team=a:NoExecute",
            id="an operator that we do not know tolerates nothing",
        ),
        pytest.param({"labels": {"zone": "a"}}, {"nodeSelector": {"zone": "a"}}, None, id="selector"),
        pytest.param(
            {"labels": {"zone": "b"}}, {"nodeSelector": {"zone": "a"}}, "has no label zone=a", id="another zone"
        ),
        pytest.param({}, {"nodeSelector": {"zone": ""}}, "has no label zone=", id="no label is not an empty one"),
        pytest.param(
            {"labels": {"zone": "b"}},
            {"nodeSelector": {"zone": "a"}, "affinity": affinity([("zone", "In", "b")])},
            "has no label zone=a",
            id="selector and affinity must both hold",
        ),
    ],
)
def test_state_taints_and_selector(state, spec, words):
    assert refusal(pod(container(), **spec), node(**state)) == words


REMEDY = (
    " (written where GPUs have a static MIG layout: leave it out of the pod's node selector, or see `instaslice "
    "controller --static-mig-labels`)"
)


@pytest.mark.parametrize(
    "labels, spec, words",
    [
        pytest.param(
            {},
            {"nodeSelector": {"nvidia.com/mig.strategy": "mixed"}},
            f"has no label nvidia.com/mig.strategy=mixed{REMEDY}",
            id="strategy",
        ),
        pytest.param(
            {"nvidia.com/mig-1g.5gb.count": "14"},
            {"nodeSelector": {"nvidia.com/mig-1g.5gb.count": "2"}},
            f"has no label nvidia.com/mig-1g.5gb.count=2{REMEDY}",
            id="another count",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"nvidia.com/mig.config": "all-1g.5gb"}},
            "has no label nvidia.com/mig.config=all-1g.5gb (written for NVIDIA's MIG manager: leave it out of the "
            "pod's node selector, or have the node labelled by hand)",
            id="a layout of the MIG manager",
        ),
        pytest.param(
            {},
            {"affinity": affinity([("zone", "Exists")], [("nvidia.com/mig-1g.5gb.product", "Exists")])},
            f"does not match zone exists nor nvidia.com/mig-1g.5gb.product exists{REMEDY}",
            id="in one of two terms",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"nvidia.com/gpu.product": "A30"}},
            "has no label nvidia.com/gpu.product=A30",
            id="not of a GPU",
        ),
    ],
)
def test_a_selector_by_a_static_layout_is_said_to_be_one(labels, spec, words):
    assert refusal(pod(container(), **spec), node(labels=labels)) == words


LABELS = {"zone": "a", "cores": "16", "empty": ""}


@pytest.mark.parametrize(
    "terms, words",
    [
        pytest.param([[("zone", "In", "b", "a")]], None, id="in"),
        pytest.param([[("zone", "In", "b", "c")]], "does not match zone in (b, c)", id="not in"),
        pytest.param([[("disk", "In", "")]], "does not match disk in ()", id="no label is in nothing"),
        pytest.param([[("zone", "NotIn", "b")]], None, id="notin"),
        pytest.param([[("zone", "NotIn", "a")]], "does not match zone not in (a)", id="is in"),
        pytest.param([[("disk", "NotIn", "ssd")]], None, id="notin holds without the label"),
        pytest.param([[("empty", "Exists")]], None, id="exists, though empty"),
        pytest.param([[("disk", "Exists")]], "does not match disk exists", id="does not exist"),
        pytest.param([[("disk", "DoesNotExist")]], None, id="absent"),
        pytest.param([[("zone", "DoesNotExist")]], "does not match zone is absent", id="not absent"),
        pytest.param([[("cores", "Gt", "15")]], None, id="greater"),
        pytest.param([[("cores", "Gt", "16")]], "does not match cores > 16", id="equal is not greater"),
        pytest.param([[("cores", "Lt", "17")]], None, id="less"),
        pytest.param([[("cores", "Lt", "16")]], "does not match cores < 16", id="equal is not less"),
        pytest.param([[("zone", "Gt", "1")]], "does not match zone > 1", id="a label that is no number"),
        pytest.param([[("disk", "Lt", "1")]], "does not match disk < 1", id="a number that is not there"),
        pytest.param([[("cores", "Gt", "x")]], "does not match cores > x", id="a bound that is no number"),
        pytest.param([[("cores", "Gt", "1_0")]], "does not match cores > 1_0", id="nor Python's kind of number"),
        pytest.param([[("metadata.name", "In", "gpu-0")]], None, id="by name"),
        pytest.param(
            [[("metadata.name", "In", "gpu-1")]], "does not match metadata.name in (gpu-1)", id="another name"
        ),
        pytest.param([[("metadata.name", "NotIn", "gpu-1")]], None, id="by another name"),
        pytest.param(
            [[("zone", "In", "a"), ("disk", "Exists")]], "does not match disk exists", id="all requirements of a term"
        ),
        pytest.param(
            [[("zone", "In", "a"), ("metadata.name", "In", "gpu-1")]],
            "does not match metadata.name in (gpu-1)",
            id="labels and fields of a term",
        ),
        pytest.param([[("disk", "Exists")], [("zone", "In", "a")]], None, id="any term"),
        pytest.param(
            [[("disk", "Exists")], [("zone", "In", "b")]], "does not match disk exists nor zone in (b)", id="no term"
        ),
        pytest.param(
            [[("disk", "Exists")]] * 5,
            "does not match disk exists nor disk exists nor disk exists nor 2 more terms",
            id="many terms stay short",
        ),
        pytest.param(
            [[]], "cannot match the pod's required node affinity, whose terms are all empty", id="an empty term"
        ),
        pytest.param([[], [("zone", "In", "a")]], None, id="an empty term beside one that holds"),
    ],
)
def test_required_affinity(terms, words):
    assert refusal(pod(container(), affinity=affinity(*terms)), node(labels=LABELS)) == words


def test_affinity_that_requires_nothing():
    assert refusal(pod(container(), affinity={"nodeAffinity": {}}), node()) is None
    assert refusal(pod(container(), affinity={}), node()) is None
