"""Ports of a node: who opens what, and what is in the way of whom."""

import pytest
from fitting import neighbour, node

from instaslice.controller.scheduling.host_ports import PortsInUse, host_ports


def opens(port=8080, protocol="TCP", ip=None):
    port = {"containerPort": 80, "hostPort": port, "protocol": protocol, **({"hostIP": ip} if ip else {})}
    return {"name": "web", "ports": [port]}


@pytest.mark.parametrize(
    "there, comes, words",
    [
        pytest.param(opens(), opens(), "host port 8080/TCP is in use", id="the same"),
        pytest.param(opens(), opens(8081), None, id="another"),
        pytest.param(opens(), opens(protocol="UDP"), None, id="another protocol"),
        pytest.param(opens(ip="10.0.0.1"), opens(ip="10.0.0.2"), None, id="two addresses"),
        pytest.param(
            opens(ip="10.0.0.1"), opens(ip="10.0.0.1"), "host port 8080/TCP of 10.0.0.1 is in use", id="one address"
        ),
        pytest.param(opens(ip="10.0.0.1"), opens(), "host port 8080/TCP is in use", id="all addresses want it"),
        pytest.param(
            opens(ip="0.0.0.0"),
            opens(ip="10.0.0.1"),
            "host port 8080/TCP of 10.0.0.1 is in use",
            id="all addresses have it",
        ),
        pytest.param(opens(0), opens(0), None, id="none of the node"),
    ],
)
def test_what_is_in_the_way(there, comes, words):
    ports = PortsInUse()
    other, pod = neighbour("other", containers=[there]), neighbour("mine", containers=[comes])
    ports.add(other, "gpu-0")
    verdict = ports.pre_filter(pod)
    assert (verdict and verdict.refusal(node("gpu-0"))) == words
    assert (verdict and verdict.refusal(node("gpu-1"))) is None
    assert (verdict and verdict.refusal(node("gpu-0"), emptied=True)) is None
    ports.remove(other, "gpu-0")
    assert (verdict and verdict.refusal(node("gpu-0"))) is None
    assert not ports.on


def test_a_pod_is_not_in_its_own_way():
    ports, pod = PortsInUse(), neighbour("mine", containers=[opens()])
    ports.add(pod, "gpu-0")
    assert ports.pre_filter(pod).refusal(node("gpu-0")) is None


def test_a_sidecar_opens_its_ports_and_an_init_container_does_not():
    sidecar = {**opens(1), "restartPolicy": "Always"}
    pod = neighbour(initContainers=[opens(2), sidecar], containers=[opens(3)])
    assert [str(each) for each in host_ports(pod)] == ["1/TCP", "3/TCP"]
