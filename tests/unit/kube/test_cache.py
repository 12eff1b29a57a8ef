"""The cache: indexes follow every change, handlers hear each change once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instaslice.kube.cache import Cache
from instaslice.kube.core import Pod, PodSpec
from instaslice.kube.meta import Key, ObjectMeta, key_of


def pod(name, version="1", *, node="", uid=None):
    meta = ObjectMeta(namespace="team-a", name=name, uid=uid or f"uid-{name}", resource_version=version)
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


def keyed(*pods):
    return {key_of(each): each for each in pods}


@pytest.fixture
def heard():
    return []


@pytest.fixture
def cache(heard):
    made = Cache(indexes={"node": lambda each: [each.spec.node_name] if each.spec.node_name else []})
    made.on_change(
        lambda old, new: heard.append(
            (old and (old.metadata.name, old.metadata.resource_version), new and new.metadata.resource_version)
        )
    )
    return made


def names(pods):
    return [each.metadata.name for each in pods]


def test_an_index_follows_a_pod_to_another_node_and_out(cache):
    cache.upsert(pod("a", node="n1"))
    cache.upsert(pod("a", "2", node="n2"))
    assert (cache.by("node", "n1"), names(cache.by("node", "n2"))) == ([], ["a"])
    cache.remove(pod("a", "3", node="n2"))
    assert cache.by("node", "n2") == []
    assert cache.get(Key("team-a", "a")) is None


def test_the_same_version_again_is_no_news(cache, heard):
    cache.upsert(pod("a"))
    cache.upsert(pod("a"))
    assert heard == [(None, "1")]


def test_an_object_made_anew_under_its_name_goes_first_and_comes_then(cache, heard):
    cache.upsert(pod("a", "1", uid="first"))
    cache.upsert(pod("a", "2", uid="second"))
    assert heard == [(None, "1"), (("a", "1"), None), (None, "2")]


def test_removing_what_is_not_there_is_no_news(cache, heard):
    cache.remove(pod("a"))
    assert heard == []


def test_a_fresh_list_tells_only_the_difference(cache, heard):
    cache.replace(keyed(pod("same"), pod("changed"), pod("gone")))
    heard.clear()
    cache.replace(keyed(pod("same"), pod("changed", "2"), pod("new", "3")))
    assert heard == [(("gone", "1"), None), (("changed", "1"), "2"), (None, "3")]
    assert sorted(names(cache)) == ["changed", "new", "same"]


async def test_a_cache_is_synced_after_the_first_list_even_an_empty_one(cache):
    assert not cache.is_synced
    cache.replace({})
    await cache.synced()
    assert cache.is_synced


def test_a_handler_that_comes_late_hears_what_is_there(cache):
    cache.upsert(pod("a"))
    late = []
    cache.on_change(lambda old, new: late.append((old, new.metadata.name)))
    assert late == [(None, "a")]


changes = st.lists(
    st.tuples(st.sampled_from(["upsert", "remove"]), st.sampled_from("abcd"), st.sampled_from(["", "n1", "n2"])),
    max_size=40,
)


@given(changes)
def test_an_index_always_equals_a_scan(steps):
    cache = Cache(indexes={"node": lambda each: [each.spec.node_name]})
    for version, (verb, name, node) in enumerate(steps):
        getattr(cache, verb)(pod(name, str(version), node=node))
    for node in ["", "n1", "n2"]:
        scanned = [each for each in cache if each.spec.node_name == node]
        assert sorted(names(cache.by("node", node))) == sorted(names(scanned))


@pytest.mark.parametrize(
    "answer, known",
    [
        pytest.param(pod("a", "3"), "3", id="newer than what the watch has told"),
        pytest.param(pod("a", "3", uid="another"), "2", id="of one that had the name before"),
        pytest.param(pod("b", "3"), None, id="of one that is gone by now"),
    ],
)
def test_what_an_answer_tells(cache, answer, known):
    cache.upsert(pod("a", "2"))
    cache.refresh(answer)
    here = cache.get(key_of(answer))
    assert (here and here.metadata.resource_version) == known
