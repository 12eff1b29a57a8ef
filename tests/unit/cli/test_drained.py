"""What `instaslice drained` says of pods that hold slices."""

from instaslice.api.instaslice import Allocation, AllocationState, PodRef
from instaslice.cli.drained import MOST_PODS, lines


def held(pod, profile="1g.5gb", node="a"):
    ref = PodRef(namespace="team", name=pod, uid=f"uid-of-{pod}")
    return node, Allocation(f"{pod}-{profile}", ref, "main", profile, "GPU-0", 0, 1, AllocationState.UNGATED)


def test_each_pod_is_named_once_with_all_its_slices():
    assert lines([held("train"), held("train", "3g.20gb"), held("serve", node="b")]) == [
        "pod team/serve on node b: 1g.5gb",
        "pod team/train on node a: 1g.5gb, 3g.20gb",
        "2 pods hold slices; delete them, or skip this check: helm uninstall … --no-hooks",
    ]


def test_of_many_pods_the_first_are_named():
    *named, more, remedy = lines(held(f"pod-{number:02}") for number in range(MOST_PODS + 3))
    assert len(named) == MOST_PODS
    assert more == "and 3 more"
    assert remedy.startswith("13 pods hold slices")
