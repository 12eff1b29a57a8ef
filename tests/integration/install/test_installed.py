"""The life of an installation by the chart on a real node: in the order of this file, on one cluster."""

import asyncio
import contextlib
import dataclasses
import json
import shutil

import pytest
import yaml
from helm import CHART, NAMESPACE, RELEASE, HelmFailed
from waiting import until
from whole_cluster import difference, everything

from instaslice.api import crd, names
from instaslice.api.instaslice import INSTASLICES
from instaslice.cli.drained import holds
from instaslice.kube.client import Selector
from instaslice.kube.core import NAMESPACES, PODS
from instaslice.kube.errors import KubeError, NotFound
from instaslice.kube.meta import Key
from instaslice.local import images, realnode
from instaslice.local.objects import DEFINITIONS

PATIENCE = 120
TRAIN, MORE = Key("default", "train"), Key("default", "more")
OURS = Selector(namespace=NAMESPACE, labels="app.kubernetes.io/name=instaslice")


def pod(name, profile="1g.5gb"):
    command = ["sh", "-c", "echo $INSTASLICE_MIG_UUIDS; exec sleep 3600"]
    limits = {f"nvidia.com/mig-{profile}": 1}
    main = {"name": "main", "image": images.BUSYBOX, "command": command, "resources": {"limits": limits}}
    spec = {"containers": [main], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec}


async def running(client, key):
    async def found():
        pod = await client.get(PODS, key)
        return pod if pod.status.phase == "Running" else None

    return await until(found, PATIENCE, f"{key} runs")


async def printed(client, key):
    return (await client.raw("GET", PODS.path(*key, "log"))).decode().strip()


async def gone(client, key):
    async def absent():
        try:
            await client.get(PODS, key)
        except NotFound:
            return True
        return False

    await client.delete(PODS, key)
    await until(absent, PATIENCE, f"{key} is gone")


async def in_a_thread(call, *arguments, **more):
    """Helm waits; the event loop has others to serve meanwhile."""
    return await asyncio.to_thread(call, *arguments, **more)


@pytest.fixture(scope="module")
def before():
    """Where the first test keeps what the cluster was, for the last to compare."""
    return {}


async def test_a_definition_that_others_install_has_to_be_there(helm, settings):
    with pytest.raises(HelmFailed, match="this cluster has no definition of the Instaslice object"):
        await in_a_thread(helm.template, *settings, "crds.install=false", flags=("--dry-run=server",))


async def test_an_installation_that_never_worked_is_uninstalled_at_once(helm, client, settings, before):
    before.update(await everything(client))
    with pytest.raises(HelmFailed, match="instaslice-webhook"):
        await in_a_thread(helm.install, *settings, "image.tag=absent", flags=("--take-ownership", "--timeout=3s"))
    # No image that cannot be pulled is waited for.
    await in_a_thread(helm.run, "uninstall", RELEASE, "--wait", "--timeout=60s")
    await restored(client, before)


async def test_the_chart_is_installed_as_the_docs_say_and_its_pods_run_the_image(
    helm, client, page, variables, image, before
):
    await in_a_thread(page.run, page.lines("make deploy", "make deploy"), **variables)
    pods = await client.list(PODS, OURS)
    components = sorted(each.metadata.labels["app.kubernetes.io/component"] for each in pods)
    assert components == ["agent", "controller", "controller", "webhook", "webhook"]
    assert {each.spec.node_name for each in pods} == {realnode.NAME}
    for each in pods:
        document = await client.raw("GET", PODS.path(*Key(NAMESPACE, each.metadata.name)))
        (container,) = yaml.safe_load(document)["status"]["containerStatuses"]
        assert (container["image"], container["restartCount"]) == (image, 0)


async def test_another_call_of_make_deploy_keeps_what_the_first_one_set(helm, page, variables, image):
    set_before = await in_a_thread(helm.run, "get", "values", RELEASE)
    assert variables["HOST"] in set_before
    await in_a_thread(page.run, f"make deploy IMG={image}", **variables)
    assert await in_a_thread(helm.run, "get", "values", RELEASE) == set_before


async def test_the_test_of_the_chart_passes_and_prints_its_log(page, variables):
    printed = await in_a_thread(page.run, page.lines("helm test", "helm test") + " --timeout=60s --logs", **variables)
    assert "Phase:          Succeeded" in printed
    assert "slice MIG-" in printed


async def test_a_pod_gets_its_slice(client):
    await client.create(PODS, pod("train"))
    made = await running(client, TRAIN)
    assert await printed(client, TRAIN) == made.metadata.annotations[names.MIG_UUIDS] != ""


@contextlib.asynccontextmanager
async def creating_pods(client):
    """Somebody creates pods with slices all the while; yields what was refused. None of them ever fits."""
    refused, created, enough = [], 0, asyncio.Event()

    async def create():
        nonlocal created
        while not enough.is_set():
            name = f"client-{created}"
            try:
                made = await client.create(PODS, pod(name, "7g.40gb"))
                assert made.metadata.name == name
                await client.delete(PODS, Key("default", name))
            except KubeError as error:
                refused.append(str(error))
            created += 1
            await asyncio.sleep(0.05)

    task = asyncio.create_task(create())
    try:
        yield refused
    finally:
        # Not cancelled: what it has created it also deletes.
        enough.set()
        await task
    assert created > 20


async def containers(client, key):
    document = await client.raw("GET", PODS.path(*key))
    return [each["containerID"] for each in yaml.safe_load(document)["status"]["containerStatuses"]]


async def only(client, version):
    """All our pods are of this version; those of the other are gone, which keep answering for a while."""

    async def seen():
        found = await client.list(PODS, OURS)
        return {each.metadata.labels["app.kubernetes.io/version"] for each in found} == {version}

    await until(seen, PATIENCE, f"only pods of {version}")


@pytest.fixture
def next_chart(tmp_path):
    """The chart as a later version would be."""
    chart = shutil.copytree(CHART, tmp_path / "instaslice")
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    about.update(version="0.1.1", appVersion="0.1.1")
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    return chart


async def test_an_upgrade_and_a_rollback_disturb_no_pod_and_refuse_none(helm, client, settings, next_chart):
    held, slices = await containers(client, TRAIN), await printed(client, TRAIN)
    async with creating_pods(client) as refused:
        newer = (*settings, "image.tag=next", "controller.patience=20")
        later = dataclasses.replace(helm, chart=next_chart)
        await in_a_thread(later.install, *newer, flags=("--take-ownership",))
        await only(client, "0.1.1")
        # What runs now works.
        await client.create(PODS, pod("more"))
        await running(client, MORE)
        await in_a_thread(helm.run, "rollback", RELEASE, "1", "--wait", "--timeout=180s")
        await only(client, "0.1.0")
    assert refused == []
    assert (await containers(client, TRAIN), await printed(client, TRAIN)) == (held, slices)
    await gone(client, MORE)


async def test_an_image_that_cannot_be_pulled_changes_nothing_for_pods(helm, client, settings):
    with pytest.raises(HelmFailed, match="instaslice-webhook"):
        await in_a_thread(helm.install, *settings, "image.tag=absent", flags=("--take-ownership", "--timeout=10s"))
    # The webhook of before still answers, a controller still leads.
    await client.create(PODS, pod("more"))
    await running(client, MORE)
    await gone(client, MORE)
    await in_a_thread(helm.run, "rollback", RELEASE, "--wait", "--timeout=180s")


async def test_uninstalling_is_refused_while_a_pod_holds_a_slice(helm, client):
    with pytest.raises(HelmFailed, match=r"pod default/train on node real-0: 1g\.5gb") as refused:
        await in_a_thread(helm.run, "uninstall", RELEASE, "--timeout=60s")
    assert "--no-hooks" in str(refused.value)
    await running(client, TRAIN)
    await client.create(PODS, pod("more"))
    await running(client, MORE)
    await gone(client, MORE)
    # Helm holds the release for half removed, and upgrades it again only after this: to the revision that it has.
    (last,) = json.loads(await in_a_thread(helm.run, "history", RELEASE, "--max=1", "--output=json"))
    await in_a_thread(helm.run, "rollback", RELEASE, str(last["revision"]), "--wait", "--timeout=180s")


async def restored(client, before):
    """What Helm leaves on purpose is deleted; then the cluster is as it was before."""
    await client.delete(NAMESPACES, Key("", NAMESPACE))
    await client.delete(DEFINITIONS, Key("", crd.NAME))
    found = []

    async def same():
        found[:] = difference(before, await everything(client))
        return not found

    # What belongs to what was removed goes some time after it.
    await until(same, PATIENCE, lambda: "\n".join(found))


async def test_without_pods_that_hold_slices_the_cluster_becomes_as_it_was(helm, client, before):
    await gone(client, TRAIN)

    async def drained():
        objects = await client.list(INSTASLICES)
        return not any(holds(allocation, each) for each in objects for allocation in each.spec.allocations)

    await until(drained, PATIENCE, "no pod holds a slice")
    await in_a_thread(helm.run, "uninstall", RELEASE, "--wait", "--timeout=120s")
    assert [each.metadata.name for each in await client.list(INSTASLICES)] == [realnode.NAME]
    await restored(client, before)


async def test_who_insists_uninstalls_under_a_running_pod_which_does_not_notice(helm, client, settings, before):
    await in_a_thread(helm.install, *settings, flags=("--take-ownership",))
    await client.create(PODS, pod("train"))
    await running(client, TRAIN)
    held = await containers(client, TRAIN)
    await in_a_thread(helm.run, "uninstall", RELEASE, "--no-hooks", "--wait", "--timeout=120s")
    assert await containers(client, TRAIN) == held
    await gone(client, TRAIN)
    await restored(client, before)
