"""What the controller takes a pod of a template for is what the webhook makes of it."""

import msgspec
import pytest
from slice_pods import LARGEST, container, mutated, pod

from instaslice.api.errors import Rejected
from instaslice.api.future_pods import as_admitted
from instaslice.kube.core import Pod


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(container(limits={"cpu": "1"})), id="no slices"),
        pytest.param(pod(container(limits={"nvidia.com/mig-1g.5gb": 1})), id="one slice, in limits"),
        pytest.param(
            pod(container(limits={"nvidia.com/mig-1g.5gb": "2"}, requests={"nvidia.com/mig-1g.5gb": "2", "cpu": "1"})),
            id="two, in both",
        ),
        pytest.param(
            pod(container(limits={"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-1g.5gb.me": 1})), id="two profiles"
        ),
        pytest.param(pod(container(limits={"nvidia.com/mig-1g.5gb": 0})), id="zero slices"),
        pytest.param(
            pod(
                container(limits={"nvidia.com/mig-2g.10gb": 1}),
                container("side", requests={"cpu": "100m"}),
                init=[container("first", limits={"nvidia.com/mig-1g.5gb": 1})],
            ),
            id="several containers",
        ),
        pytest.param(
            pod(container(limits={"nvidia.com/mig-1g.5gb": 1}), tolerations=[{"key": "spot", "operator": "Exists"}]),
            id="a toleration of its own",
        ),
        pytest.param(mutated(pod(container(limits={"nvidia.com/mig-1g.5gb": 1}))), id="been through the webhook"),
        pytest.param(pod(container(limits={"gpu.das.com/mem": 8})), id="memory alone"),
        pytest.param(mutated(pod(container(limits={"gpu.das.com/mem": 8}))), id="memory alone, through the webhook"),
    ],
)
def test_a_future_pod_asks_for_what_the_webhook_makes_of_it(document):
    expected = msgspec.convert(mutated(document), Pod).spec
    found = as_admitted(msgspec.convert(document, Pod), LARGEST).spec
    assert (found.containers, found.init_containers or None) == (expected.containers, expected.init_containers)
    assert (found.tolerations or []) == (expected.tolerations or [])


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(container(limits={"nvidia.com/mig-9g.99gb": 1})), id="a profile that does not exist"),
        pytest.param(pod(container(limits={"nvidia.com/mig-7g.40gb": 99})), id="more than any node holds"),
        pytest.param(pod(container(limits={"gpu.das.com/mem": 9000})), id="more memory than any GPU has"),
        pytest.param(
            pod(container(limits={"nvidia.com/mig-1g.5gb": 1}), annotations={"gpu.das.com/fit": "any"}),
            id="terms without an ask by memory",
        ),
        pytest.param(
            pod(container(limits={"gpu.das.com/mem": 8, "gpu.das.com/mig-any": 1})), id="what only the webhook adds"
        ),
    ],
)
def test_what_the_webhook_rejects_is_rejected_with_the_same_message(document):
    with pytest.raises(Rejected) as of_webhook:
        mutated(document)
    with pytest.raises(Rejected) as of_template:
        as_admitted(msgspec.convert(document, Pod), LARGEST)
    assert str(of_template.value) == str(of_webhook.value)
