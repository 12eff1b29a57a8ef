"""A cache stays true to the real API server through everything that happens to a connection."""

import asyncio
import json
import logging
import shutil
import urllib.request

import pods
import pytest
from history import PATIENCE, following
from tcp_proxy import Proxy
from waiting import until

from instaslice.kube.client import Client
from instaslice.kube.core import NAMESPACES, PODS, Namespace
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.local.binaries import Source
from instaslice.local.cluster import ClusterSpec
from instaslice.local.objects import ClusterObjects

WAYS = [pytest.param(True, id="watch-list"), pytest.param(False, id="paged list, then watch")]


def call_etcd(cluster, path, body):
    plane = cluster.plane()
    request = urllib.request.Request(plane.etcd + path, json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request, context=plane.admin()))


@pytest.fixture
async def proxy(cluster, tmp_path):
    async with Proxy(cluster.kubeconfig, tmp_path) as made:
        yield made


@pytest.fixture
async def behind_proxy(proxy):
    async with await Client.connect(proxy.kubeconfig) as made:
        yield made


@pytest.mark.parametrize("watch_list", WAYS)
async def test_what_is_there_and_what_happens_then_is_told_once(client, namespace, watch_list):
    await pods.make(client, namespace, ["a", "b"])
    async with following(client, namespace, watch_list=watch_list) as history:
        assert sorted(history.told) == [("came", "a"), ("came", "b")]
        history.told.clear()
        await pods.make(client, namespace, ["c"])
        await pods.label(client, namespace, "a", "1")
        await pods.remove(client, namespace, "b")
        await until(lambda: len(history.told) == 3, PATIENCE)
        await history.until_true(client, namespace)
        assert history.told == [("came", "c"), ("changed", "a"), ("went", "b")]


@pytest.mark.parametrize("watch_list", WAYS)
async def test_the_api_server_killed_and_restarted_in_the_middle_of_a_watch(cluster, client, namespace, watch_list):
    names = [f"p{number}" for number in range(20)]
    await pods.make(client, namespace, names)
    async with following(client, namespace, watch_list=watch_list) as history:
        await pods.label(client, namespace, "p0", "before")
        await asyncio.to_thread(cluster.kill, "kube-apiserver")
        await asyncio.to_thread(cluster.start, "kube-apiserver")
        # The reflector may still be waiting: what happens now it must learn from the list, or from where it resumes.
        await pods.label(client, namespace, "p1", "after")
        await pods.remove(client, namespace, "p2")
        await pods.remove(client, namespace, "p3")
        await pods.make(client, namespace, ["p3", "new"])
        await history.until_true(client, namespace)
        went = [name for kind, name in history.told if kind == "went"]
        came = [name for kind, name in history.told if kind == "came"]
        changed = [name for kind, name in history.told if kind == "changed"]
        assert sorted(went) == ["p2", "p3"]
        assert sorted(came) == sorted([*names, "p3", "new"])
        assert sorted(changed) == ["p0", "p1"]


async def test_a_compacted_resource_version_is_listed_again(cluster, client, namespace, proxy, behind_proxy, caplog):
    caplog.set_level("INFO")
    await pods.make(client, namespace, ["stays", "changes", "goes"])
    async with following(behind_proxy, namespace) as history:
        proxy.cut()
        await pods.label(client, namespace, "changes", "unseen")
        await pods.remove(client, namespace, "goes")
        await pods.make(client, namespace, ["new"])
        # The server answers old versions from its memory; a new process has only etcd to request.
        await asyncio.to_thread(cluster.kill, "kube-apiserver")
        now = call_etcd(cluster, "/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        call_etcd(cluster, "/v3/kv/compaction", {"revision": now, "physical": True})
        await asyncio.to_thread(cluster.start, "kube-apiserver")
        history.told.clear()
        proxy.mend()
        await history.until_true(client, namespace)
        assert sorted(history.told) == [("came", "new"), ("changed", "changes"), ("went", "goes")]
        assert "listing again" in caplog.text


def restart(cluster, meanwhile):
    """Stop the API server and etcd, do something, start them."""
    for component in ("kube-apiserver", "etcd"):
        cluster.kill(component)
    meanwhile()
    for component in ("etcd", "kube-apiserver"):
        cluster.start(component)


async def test_a_server_that_was_restored_from_a_backup(new_cluster, tmp_path, caplog):
    """It counts versions from the backup on, and takes a watch from one that it has not reached without a word."""
    caplog.set_level("INFO")
    cluster, namespace, backup = new_cluster("restored"), "team", tmp_path / "backup"
    await asyncio.to_thread(cluster.up, ClusterSpec(nodes=1, bare=True), Source())
    etcd = cluster.plane().layout.etcd

    def restore():
        shutil.rmtree(etcd)
        shutil.copytree(backup, etcd)

    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as client:
        await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name=namespace)))
        await ClusterObjects(client).namespace_ready(namespace)
        await pods.make(client, namespace, ["stays", "changes", "returns"])
        await asyncio.to_thread(restart, cluster, lambda: shutil.copytree(etcd, backup))
        async with following(client, namespace) as history:
            await pods.make(client, namespace, ["lost"])
            await pods.remove(client, namespace, "returns")
            for number in range(300):
                await pods.label(client, namespace, "changes", str(number))
            await history.until_true(client, namespace)
            history.told.clear()
            await asyncio.to_thread(restart, cluster, restore)
            await history.until_true(client, namespace)
            assert sorted(history.told) == [("came", "returns"), ("changed", "changes"), ("went", "lost")]
            assert "the server went back from version" in caplog.text
            await pods.label(client, namespace, "changes", "again")
            await history.until_true(client, namespace)


async def test_a_watch_that_goes_silent_is_replaced(client, namespace, proxy, behind_proxy):
    await pods.make(client, namespace, ["seen"])
    async with following(behind_proxy, namespace, silent_after=1.0) as history:
        proxy.fall_silent()
        await pods.make(client, namespace, ["unheard"])
        await until(lambda: ("came", "unheard") in history.told, PATIENCE)
        await history.until_true(client, namespace)


async def test_where_nothing_happens_nothing_is_said(client, namespace, monkeypatch, caplog):
    """The server sends no bookmark for long: the watch is opened again and again, and misses nothing."""
    opened, watch = [], client.watch

    def counted(*args, **options):
        opened.append(options)
        return watch(*args, **options)

    monkeypatch.setattr(client, "watch", counted)
    async with following(client, namespace, silent_after=0.3) as history:
        await until(lambda: len(opened) > 3, PATIENCE)
        await pods.make(client, namespace, ["seen"])
        await until(lambda: history.told == [("came", "seen")], PATIENCE)
        await until(lambda: len(opened) > 6, PATIENCE)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_an_api_server_that_hangs_and_comes_back(cluster, client, namespace):
    async with following(client, namespace, silent_after=1.0) as history:
        cluster.pause("kube-apiserver")
        try:
            async with asyncio.timeout(30):
                while history.reflector.failure is None:  # it has no event for its failures
                    await asyncio.sleep(0.05)
        finally:
            cluster.resume("kube-apiserver")
        await pods.make(client, namespace, ["after"])
        await history.until_true(client, namespace)
        assert history.reflector.failure is None


async def test_a_server_that_refuses_watch_lists_is_listed_in_pages(client, namespace, caplog):
    """The real refusal: the server wants resourceVersionMatch beside sendInitialEvents, so we leave it out."""

    class Refused(Client):
        def watch(self, resource, selector, params, *, silent_after):
            params = {name: value for name, value in params.items() if name != "resourceVersionMatch"}
            return super().watch(resource, selector, params, silent_after=silent_after)

    caplog.set_level("INFO")
    await pods.make(client, namespace, ["a"])
    async with following(Refused(client._transport), namespace) as history:
        await pods.make(client, namespace, ["b"])
        await history.until_true(client, namespace)
    assert "has no watch-list" in caplog.text


async def test_three_thousand_pods_listed_and_watched(client, namespace):
    names = [f"p{number:04}" for number in range(3000)]
    await pods.make(client, namespace, names)
    async with (
        following(client, namespace) as listed,
        following(client, namespace, watch_list=False) as paged,
    ):
        assert len(listed.cache) == len(paged.cache) == 3000
        for name in names[:100]:
            await pods.label(client, namespace, name, "1")
        for name in names[100:150]:
            await pods.remove(client, namespace, name)
        for history in (listed, paged):
            await history.until_true(client, namespace)
            assert len(history.told) == 3150
            assert sum(not pod.spec.node_name for pod in history.cache) == 2950


async def test_a_handler_that_fails_ends_the_watch(client, namespace):
    with pytest.raises(ExceptionGroup) as raised:
        async with following(client, namespace) as history:
            history.cache.on_change(lambda old, new: 1 / 0)
            await pods.make(client, namespace, ["a"])
            await until(lambda: False, PATIENCE)
    assert raised.group_contains(ZeroDivisionError)


async def test_an_object_larger_than_any_buffer(client, namespace):
    async with following(client, namespace) as history:
        large = pods.pod(namespace, "large")
        large["metadata"]["annotations"] = {"note": "x" * 250_000}
        large["spec"]["containers"][0]["args"] = ["y" * 100_000] * 8
        await client.create(PODS, large)
        await history.until_true(client, namespace)
        assert len(history.cache.get(Key(namespace, "large")).metadata.annotations["note"]) == 250_000
