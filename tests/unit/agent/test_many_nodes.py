"""What the agent does when objects, nodes, hardware, kubelet and server do as they like: watches, queue and writes."""

import asyncio

import msgspec
import pytest
from fake_clock import FakeClock
from process_bench import MODEL, Bench, there, wants

from instaslice.agent.kubelet.device_ids import PodSlice
from instaslice.agent.kubelet.node_devices import NodeDevices
from instaslice.agent.kubelet.paths import NodePaths
from instaslice.agent.kubelet.wiring import EmulatedWiring
from instaslice.agent.served_node import LAZY_SECONDS, RESYNC_SECONDS, SILENCE_SECONDS
from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES
from instaslice.drivers.executor import GpuExecutor
from instaslice.kube.core import NODES, Node
from instaslice.kube.errors import Unreachable
from instaslice.kube.meta import ObjectMeta


@pytest.fixture
async def bench():
    async with Bench(grace=60) as made:
        yield made


# What is told ----------------------------------------------------------------------------------------------------


async def test_a_slice_is_made_and_told_and_its_pod_does_not_wait(bench):
    driver = await bench.node()
    bench.patches()
    bench.promise(wants(driver, "a"))
    await bench.passes(0)
    assert (bench.states(), there(driver)) == ({"a": "created"}, [("1g.5gb", 0)])
    assert bench.patches() == [["/status/observedGeneration", "/status/slices", "/status/summary"]]


async def test_an_entry_of_a_slice_that_is_gone_is_pruned_when_somebody_has_time(bench):
    driver = await bench.node()
    bench.promise(wants(driver, "a"))
    await bench.passes(0)
    bench.promise(wants(driver, "a", state="deleting"))
    await bench.passes(0)
    assert bench.states() == {"a": "deleted"}
    bench.promise()
    await bench.passes(LAZY_SECONDS - 1)
    assert bench.states() == {"a": "deleted"}
    await bench.passes(1)
    assert bench.states() == {}
    assert bench.object().status.observed_generation == bench.object().metadata.generation


async def test_a_status_that_was_edited_by_hand_is_put_right_within_a_resync(bench):
    driver = await bench.node()
    bench.promise(wants(driver, "a"))
    await bench.passes(0)
    right = bench.object().status
    edited = bench.server.get(INSTASLICES, "node")
    edited["status"] = {"observedGeneration": 1, "slices": [], "gpus": []}
    bench.server.put(INSTASLICES, edited)
    await bench.passes(RESYNC_SECONDS + 1)
    assert bench.object().status == right


async def test_hardware_that_was_changed_by_hand_is_seen_within_a_resync(bench):
    driver = await bench.node()
    driver.create(driver.discover()[0].uuid, "2g.10gb", 2)
    await bench.passes(RESYNC_SECONDS + 1)
    assert list(bench.states().values()) == ["foreign"]


async def test_a_node_that_is_idle_costs_no_writes(bench):
    await bench.node()
    bench.patches()
    await bench.passes(10 * RESYNC_SECONDS)
    assert bench.server.written == []


async def test_what_changes_while_a_write_is_on_its_way_is_written_by_the_next_one(bench):
    driver = await bench.node()
    bench.server.took = 1.0
    bench.patches()
    promised = []
    for start in range(6):
        promised.append(wants(driver, f"p{start}", start))
        bench.promise(*promised)
        await bench.passes(0.125)
    await bench.passes(3)
    assert set(bench.states()) == {f"p{start}" for start in range(6)} and set(bench.states().values()) == {"created"}
    assert len(bench.patches()) == 2


async def test_a_report_waits_for_company_while_more_is_to_come_and_not_otherwise(bench):
    driver = await bench.node()
    gpu = driver.discover()[0].uuid
    held, plain = wants(driver, "held"), wants(driver, "plain", 1)
    bench.promise(held, plain)
    await bench.passes(10)
    driver.faults.hold(gpu, 0, "pid 1")
    bench.server.took = 0.25
    bench.patches()
    bench.promise(wants(driver, "held", state="deleting"), plain)
    await bench.passes(0.5)
    assert len(bench.patches()) == 1 and bench.states()["held"] == "deleting"
    bench.promise(wants(driver, "held", state="deleting"), plain, wants(driver, "more", 2))
    await bench.passes(0.5)
    assert bench.patches() == [], "one is still under way: as long again as five writes take"
    await bench.passes(1)
    assert len(bench.patches()) == 1 and bench.states()["more"] == "created"
    driver.faults.release(gpu, 0)
    await bench.passes(30)
    bench.patches()
    bench.promise(plain, wants(driver, "more", 2), wants(driver, "last", 3))
    await bench.passes(0.25)
    bench.promise(plain, wants(driver, "more", 2), wants(driver, "last", 3), wants(driver, "very-last", 4))
    await bench.passes(0.25)
    assert bench.states()["very-last"] == "created", "nothing is under way: it goes at once"


async def test_what_it_wrote_itself_does_not_wake_it(bench):
    driver = await bench.node()
    bench.promise(wants(driver, "a"))
    await bench.passes(0)
    bench.rack.looks.clear()
    bench.server.put(INSTASLICES, bench.server.get(INSTASLICES, "node"))
    await bench.passes(0)
    assert bench.rack.looks == []


async def test_an_agent_that_is_started_again_writes_nothing_where_all_is_said(bench):
    driver = await bench.node()
    bench.promise(wants(driver, "a"))
    await bench.passes(0)
    bench.patches()
    await bench.restart()
    assert (bench.patches(), bench.states()) == ([], {"a": "created"})


async def test_people_read_on_the_object_which_slice_failed_which_fault_nobody_understands_and_who_has_no_device_id(
    devices,
):
    async with Bench(devices) as bench:
        driver = await bench.node(annotations={names.FAULT: "nonsense"})
        driver.faults.replace(refusals={driver.discover()[0].uuid: 9})
        bench.promise(wants(driver, "a"))
        await bench.passes(5)
        devices.warn("a pod asks for what it was not promised")
        await bench.passes(5)
        told = [(each.reason, each.action, each.regarding.kind, each.regarding.name) for each in bench.server.events]
        assert told == [
            ("BadFault", "Emulate", "Instaslice", "node"),
            ("SliceFailed", "Create", "Instaslice", "node"),
            ("NoSlice", "Allocate", "Instaslice", "node"),
        ]
        assert {(each.type, each.regarding.uid) for each in bench.server.events} == {
            ("Warning", bench.object().metadata.uid)
        }
        assert bench.server.events[1].note.startswith("1g.5gb at 0: ")


async def test_a_gpu_that_fails_and_a_node_without_gpus_are_events_once(bench):
    def recorded():
        return [(each.reason, each.note.partition(";")[0]) for each in bench.server.events]

    driver = await bench.node()
    gpu = driver.discover()[0].uuid
    assert recorded() == []
    await bench.node(annotations={names.FAULT: "0 lost"})
    await bench.passes(5)
    fell = ("GpuUnhealthy", f"GPU 0 ({gpu}): Xid 79: GPU has fallen off the bus")
    assert recorded() == [fell]
    await bench.restart()
    await bench.passes(5)
    assert recorded() == [fell], "also over a restart"
    await bench.node(model="A99")
    await bench.passes(5)
    assert [reason for reason, _ in recorded()] == ["GpuUnhealthy", "NoDriver"]


# A server that is away --------------------------------------------------------------------------------------------


async def test_a_write_that_failed_is_tried_again_soon_and_says_everything(bench):
    driver = await bench.node()
    bench.patches()
    bench.server.error = Unreachable("away")
    bench.promise(wants(driver, "a"))
    await bench.passes(20)
    assert bench.states() == {} and there(driver) == [("1g.5gb", 0)]
    bench.server.error = None
    await bench.passes(2)
    assert bench.states() == {"a": "created"}
    assert bench.patches() == [["/status"]], "whether the others took effect is not known"


async def test_a_status_never_lands_on_another_object_of_the_same_name(bench):
    driver = await bench.node()
    bench.promise(wants(driver, "a"))
    await bench.passes(0)
    # Deleted and made again, and the watch is late.
    telling, bench.server._tell = bench.server._tell, lambda *_: None
    another = bench.server.get(INSTASLICES, "node")
    another["metadata"]["uid"] = "another"
    another["spec"], another["status"] = {"allocations": []}, {"observedGeneration": 0}
    bench.server.put(INSTASLICES, another)
    driver.create(driver.discover()[0].uuid, "2g.10gb", 2)
    await bench.passes(RESYNC_SECONDS + 1)
    assert bench.states() == {}
    bench.server._tell = telling
    bench.server.put(INSTASLICES, another)
    await bench.passes(3)
    assert list(bench.states().values()) == ["foreign", "foreign"]


# Nodes and objects that come and go -------------------------------------------------------------------------------


async def test_an_object_is_made_for_a_node_belongs_to_it_and_comes_back_when_it_is_deleted(bench):
    driver = await bench.node()
    (made,) = bench.server.created
    assert made["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "one"}]
    assert made["spec"] == {"allocations": []}
    bench.promise(wants(driver, "a"))
    await bench.passes(0)
    bench.server.take(INSTASLICES, "node")
    await bench.passes(0)
    assert len(bench.server.created) == 2
    assert list(bench.states().values()) == ["foreign"]


async def test_the_object_of_an_earlier_node_of_that_name_is_replaced(bench):
    driver = await bench.node()
    bench.promise(wants(driver, "a"))
    await bench.passes(0)
    before = bench.object().metadata.uid
    await bench.node(uid="two")
    assert bench.server.deleted == ["node"]
    assert bench.object().metadata.uid != before
    assert (bench.object().spec.allocations, bench.states()) == ((), {})
    assert bench.object().metadata.owner_references[0].uid == "two"


async def test_an_object_that_belongs_to_this_node_and_to_an_earlier_one_is_kept(bench):
    await bench.node()
    edited = bench.server.get(INSTASLICES, "node")
    (owner,) = edited["metadata"]["ownerReferences"]
    edited["metadata"]["ownerReferences"] = [{**owner, "uid": "earlier"}, owner]
    bench.server.put(INSTASLICES, edited)
    await bench.passes(RESYNC_SECONDS + 1)
    assert bench.server.deleted == []


async def test_a_node_that_goes_is_forgotten_and_nothing_more_is_written(bench):
    await bench.node("gone", uid="one")
    await bench.node("stays", uid="two")
    bench.server.take(NODES, "gone")
    await bench.passes(0)
    assert bench.rack.forgotten == ["one"]
    bench.server.written.clear()
    edited = bench.server.get(INSTASLICES, "gone")
    edited["status"]["slices"] = []
    bench.server.put(INSTASLICES, edited)
    await bench.passes(2 * RESYNC_SECONDS)
    assert bench.server.written == []


async def test_a_node_whose_model_nobody_knows_is_told_so_and_served_when_it_is_known(bench):
    await bench.node(model="A99")
    assert bench.condition("Ready").reason == "NoDriver" and "no GPU model 'A99'" in bench.condition("Ready").message
    bench.patches()
    await bench.node(model="A99")
    assert bench.patches() == [], "it is said once"
    await bench.node()
    assert bench.condition("Ready").reason == "Serving"


async def test_a_node_that_changes_its_gpus_is_another_machine(bench):
    driver = await bench.node(gpus=2)
    bench.promise(wants(driver, "a"), wants(driver, "b", gpu=1))
    await bench.passes(0)
    await bench.node(gpus=1)
    assert len(bench.object().status.gpus) == 1
    assert bench.states()["b"] == "failed"
    assert bench.server.get(NODES, "node")["status"]["allocatable"][names.MEMORY] == "40"


async def test_a_node_that_goes_is_left_alone_in_the_middle_of_whatever_was_done_there(bench):
    driver = await bench.node()
    driver.create(driver.discover()[0].uuid, "2g.10gb", 2)
    await bench.restart()
    bench.server.took = 5.0
    await bench.passes(62)
    assert len(bench.server.listed) == 1, "it is being asked who uses a slice that nobody asked for"
    bench.server.take(NODES, "node")
    await bench.passes(30)
    assert there(driver) == [("2g.10gb", 2)]


async def test_what_a_node_advertises_is_put_right_on_that_node_alone(bench):
    await bench.node()
    node = bench.server.get(NODES, "node")
    assert (node["status"]["capacity"][names.MEMORY], node["status"]["allocatable"][names.MEMORY]) == ("40", "40")
    node["status"]["allocatable"][names.MEMORY] = "1"
    bench.server.put(NODES, node)
    await bench.passes(0)
    assert bench.server.get(NODES, "node")["status"]["allocatable"][names.MEMORY] == "40"
    assert [body["metadata"] for kind, _, body in bench.server.written if kind == "nodes"] == [{"uid": "one"}] * 2


# Slices that no allocation names ----------------------------------------------------------------------------------


async def test_running_pods_keep_their_slices_though_their_object_is_deleted_and_no_controller_speaks(bench):
    driver = await bench.node(gpus=2)
    mine = [wants(driver, "runs", state="ungated"), wants(driver, "ended", 1, "ungated"), wants(driver, "other", gpu=1)]
    bench.promise(*(wants(driver, each.pod.name, each.start, gpu=n // 2) for n, each in enumerate(mine)))
    await bench.passes(0)
    bench.promise(*mine)
    uuids = {each.id: each.mig_uuid for each in bench.object().status.slices}
    bench.pod("runs", uuids["runs"])
    bench.pod("ended", uuids["ended"], phase="Succeeded")
    bench.server.take(INSTASLICES, "node")
    await bench.passes(59)
    assert bench.server.listed == [], "nobody is asked before the grace is over"
    await bench.passes(100)
    assert (there(driver), there(driver, 1)) == ([("1g.5gb", 0)], [])
    assert [each.reason for each in bench.object().status.slices] == [
        "kept: pod team/runs uses it, though no allocation names it"
    ]
    assert set(bench.server.listed) == {("pods", "spec.nodeName=node")}
    await bench.restart()
    await bench.passes(200)
    assert there(driver) == [("1g.5gb", 0)]
    bench.pod("runs", uuids["runs"], phase="Failed")
    await bench.passes(60)
    assert there(driver) == []


async def test_nothing_is_destroyed_while_the_server_cannot_be_asked_for_pods(bench):
    driver = await bench.node()
    driver.create(driver.discover()[0].uuid, "2g.10gb", 2)
    await bench.restart()
    bench.server.error = Unreachable("away")
    await bench.passes(600)
    assert there(driver) == [("2g.10gb", 2)]
    bench.server.error = None
    await bench.passes(60)
    assert there(driver) == []


# The one node that we are on --------------------------------------------------------------------------------------


class Quiet(NodeDevices):
    """The kubelet's side of the node, with a kubelet that says nothing by itself."""

    kubelet_silence = ""

    async def run(self, warn, listened):
        self.warn, self.listened = warn, listened
        await asyncio.Event().wait()


@pytest.fixture
def paths(tmp_path):
    return NodePaths(tmp_path / "kubelet", tmp_path / "cdi", tmp_path / "state")


@pytest.fixture
def devices(paths):
    return Quiet(paths, EmulatedWiring(), executor=GpuExecutor(), clock=FakeClock())


async def test_while_no_kubelet_listens_the_node_says_so_and_its_slices_are_told_as_they_are(devices):
    devices.kubelet_silence = "no kubelet listens"
    async with Bench(devices) as bench:
        driver = await bench.node()
        bench.promise(wants(driver, "a"))
        await bench.passes(0)
        ready = bench.condition("Ready")
        assert (ready.status, ready.reason, ready.message) == ("False", "KubeletSilent", "no kubelet listens")
        (made,) = bench.object().status.slices
        assert (made.state, made.mig_uuid) == ("created", driver.slices(made.gpu)[0].mig_uuid)
        devices.kubelet_silence = ""
        devices.listened()
        await bench.passes(0)
        assert bench.condition("Ready").reason == "Serving", "at once: pods wait for it"
        assert not any(kind == "nodes" for kind, *_ in bench.server.written), "the kubelet tells what there is"


async def test_people_are_warned_of_a_kubelet_that_stays_silent_and_not_of_one_that_registers(devices):
    """At each start of a healthy agent no kubelet has read its resources yet."""
    devices.kubelet_silence = "no kubelet listens"
    async with Bench(devices) as bench:

        def warned():
            return [each.note for each in bench.server.events if each.reason == "KubeletSilent"]

        await bench.node()
        await bench.passes(SILENCE_SECONDS - 1)
        assert (bench.condition("Ready").reason, warned()) == ("KubeletSilent", [])
        devices.kubelet_silence = ""
        devices.listened()
        await bench.passes(2 * SILENCE_SECONDS)
        assert warned() == []
        devices.kubelet_silence = "no kubelet listens"
        devices.listened()
        await bench.passes(SILENCE_SECONDS - 1)
        assert warned() == [], "it counts from the moment at which it stopped listening"
        await bench.passes(2)
        assert warned() == ["no kubelet listens"]
        await bench.passes(2 * RESYNC_SECONDS)
        assert warned() == ["no kubelet listens"], "once"


@pytest.fixture
async def held(paths):
    """A bench of a node with a kubelet, whose pod `a` has a slice, and the device file of that slice."""
    bench = Bench()
    node = Node(metadata=ObjectMeta(name="node", uid="one", labels={names.EMULATED: MODEL}))
    (gpu,) = bench.rack.driver(node).discover()
    paths.assignments.parent.mkdir()
    paths.assignments.write_bytes(msgspec.json.encode({"1g.5gb-0": PodSlice("uid-a", gpu.uuid, "1g.5gb", 0)}))
    bench.devices = Quiet(paths, EmulatedWiring(), executor=GpuExecutor(), clock=bench.clock)
    async with bench:
        driver = await bench.node()
        bench.promise(wants(driver, "a"))
        await bench.passes(0)
        bench.devices._write_cdi()
        (file,) = paths.cdi.iterdir()
        yield bench, driver, file


async def test_a_slice_is_taken_from_its_container_before_it_is_destroyed(held):
    bench, driver, file = held
    found, destroy = [], driver.destroy
    driver.destroy = lambda doomed: (found.append(file.exists()), destroy(doomed))
    bench.promise(wants(driver, "a", state="deleting"))
    await bench.passes(0)
    assert bench.states() == {"a": "deleted"}
    assert found == [False]


async def test_a_container_keeps_its_device_file_though_the_object_of_its_node_is_deleted(held):
    bench, driver, file = held
    bench.server.take(INSTASLICES, "node")
    await bench.passes(5)
    assert list(bench.states().values()) == ["foreign"] and file.exists()
    bench.devices._write_cdi()
    assert file.exists()
    driver.destroy(*driver.slices(driver.discover()[0].uuid))
    await bench.passes(RESYNC_SECONDS + 1)
    assert bench.states() == {} and not file.exists()


async def test_nothing_that_nobody_asked_for_is_destroyed_while_the_kubelet_cannot_be_asked(devices):
    async with Bench(devices, grace=1) as bench:
        driver = await bench.node()
        driver.create(driver.discover()[0].uuid, "2g.10gb", 2)
        await bench.passes(RESYNC_SECONDS + 1)
        # A kubelet is asked over a socket, which takes real time.
        async with asyncio.timeout(10):
            while not bench.object().status.slices[0].reason:
                await bench.passes(1)
        assert "it is unknown whether a pod uses it (no kubelet answers at" in bench.object().status.slices[0].reason
        assert there(driver) == [("2g.10gb", 2)]


# A GPU that is closed ---------------------------------------------------------------------------------------------


async def test_several_slices_on_a_gpu_that_fails_each_say_what_became_of_them_and_end_when_it_is_well(bench):
    driver = await bench.node(gpus=2)
    first = [wants(driver, name, start) for start, name in enumerate(["runs", "ends", "waits"])]
    bench.promise(*first)
    await bench.passes(0)
    node = bench.server.get(NODES, "node")
    node["metadata"]["annotations"] = {names.FAULT: "0 lost Xid 79"}
    bench.server.put(NODES, node)
    bench.promise(
        wants(driver, "runs", 0, "ungated"),
        wants(driver, "ends", 1, "deleting"),
        wants(driver, "waits", 2, "deleting"),
        wants(driver, "new", 3),
        wants(driver, "elsewhere", gpu=1),
    )
    await bench.passes(0)
    told = {"runs": "created", "ends": "deleting", "waits": "deleting", "new": "failed", "elsewhere": "created"}
    assert bench.states() == told
    assert [each.reason for each in bench.object().status.slices] == ["", "Xid 79", "Xid 79", "Xid 79", ""]
    assert [(gpu.health.value, gpu.reason) for gpu in bench.object().status.gpus] == [
        ("unhealthy", "Xid 79"),
        ("healthy", ""),
    ]
    await bench.passes(600)
    assert bench.states() == told
    del node["metadata"]["annotations"]
    bench.server.put(NODES, node)
    await bench.passes(0)
    assert bench.states() == {**told, "ends": "deleted", "waits": "deleted"}
    assert there(driver) == [("1g.5gb", 0)]
