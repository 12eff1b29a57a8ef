"""The cache: handlers get each change once."""

import asyncio

import fitting
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instaslice.kube.cache import Cache
from instaslice.kube.meta import is_older, key_of


def pod(name, version="1", *, node="", uid=None):
    meta = {"namespace": "team-a", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}
    return fitting.pod(meta=meta, nodeName=node)


def keyed(*pods):
    return {key_of(each): each for each in pods}


@pytest.fixture
def heard():
    return []


@pytest.fixture
def cache(heard):
    made = Cache()
    made.on_change(
        lambda old, new: heard.append(
            (old and (old.metadata.name, old.metadata.resource_version), new and new.metadata.resource_version)
        )
    )
    return made


def names(pods):
    return [each.metadata.name for each in pods]


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
    assert not cache._synced.is_set()
    waiting = asyncio.create_task(cache.synced())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    cache.replace({})
    await waiting
    assert cache._synced.is_set()


def test_a_handler_that_comes_late_hears_what_is_there(cache):
    cache.upsert(pod("a"))
    late = []
    cache.on_change(lambda old, new: late.append((old, new.metadata.name)))
    assert late == [(None, "a")]


def held(cache):
    return {each.metadata.name: (each.metadata.uid, each.metadata.resource_version) for each in cache}


@pytest.mark.parametrize(
    "answer, known",
    [
        pytest.param(pod("a", "10"), "10", id="newer than what the watch has told"),
        pytest.param(pod("a", "8"), "9", id="older: another wrote since, and the watch was faster"),
        pytest.param(pod("a", "10", uid="another"), "9", id="of one that had the name before"),
        pytest.param(pod("b", "10"), None, id="of one that is gone by now"),
    ],
)
def test_what_an_answer_tells(cache, answer, known):
    cache.upsert(pod("a", "9"))
    cache.refresh(answer)
    here = cache.get(key_of(answer))
    assert (here and here.metadata.resource_version) == known


def test_the_watch_that_lags_behind_an_answer_is_no_news_until_it_has_caught_up(cache, heard):
    cache.upsert(pod("a", "8"))
    cache.refresh(pod("a", "10"))
    for version in ["9", "10", "11"]:
        cache.upsert(pod("a", version))
    assert heard == [(None, "8"), (("a", "8"), "10"), (("a", "10"), "11")]


@pytest.mark.parametrize(
    "last, left",
    [
        pytest.param(pod("a", "11", uid="second"), {}, id="what is here"),
        pytest.param(pod("a", "10", uid="second"), {}, id="what is here, told with its last version"),
        pytest.param(pod("a", "9", uid="first"), {"a": ("second", "10")}, id="one that had the name before"),
        pytest.param(pod("a", "11", uid="third"), {}, id="one that took the name since"),
        pytest.param(pod("a", "9", uid="second"), {"a": ("second", "10")}, id="it left the selection and came again"),
        pytest.param(pod("a", "v9", uid="first"), {"a": ("second", "10")}, id="another, nobody knows when"),
    ],
)
def test_what_a_removal_removes(cache, last, left):
    cache.upsert(pod("a", "10", uid="second"))
    cache.remove(last)
    assert held(cache) == left


def test_an_older_incarnation_does_not_return(cache, heard):
    cache.upsert(pod("a", "10", uid="second"))
    cache.upsert(pod("a", "9", uid="first"))
    assert heard == [(None, "10")]


@pytest.mark.parametrize("source", ["upsert", "refresh"])
def test_versions_that_are_no_numbers_have_no_order(cache, source):
    cache.upsert(pod("a", "c"))
    for version in ["b", "a", "", "07", "10"]:
        getattr(cache, source)(pod("a", version))
        assert held(cache) == {"a": ("uid-a", version)}


@pytest.mark.parametrize(
    "version, than, older",
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("10", "11", True),
        ("9" * 40, "1" + "0" * 40, True),
        ("1" + "0" * 40, "9" * 40, False),
        ("0", "1", False),
        ("", "1", False),
        ("09", "10", False),
        ("٣", "4", False),
        ("a", "b", False),
        ("1", "a", False),
    ],
)
def test_which_version_is_older(version, than, older):
    assert is_older(version, than) is older


def test_a_list_that_was_begun_before_an_answer_came_does_not_undo_it(cache, heard):
    cache.replace(keyed(pod("a", "8"), pod("b", "7")))
    cache.refresh(pod("a", "10"))
    heard.clear()
    cache.replace(keyed(pod("a", "9"), pod("b", "7")))
    assert heard == []
    cache.upsert(pod("a", "11"))
    assert held(cache) == {"a": ("uid-a", "11"), "b": ("uid-b", "7")}


def test_what_a_list_lacks_is_gone_whoever_answered_for_it(cache):
    cache.replace(keyed(pod("a", "8")))
    cache.refresh(pod("a", "9"))
    cache.replace({})
    assert held(cache) == {}


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([("upsert", pod("a", "20"))], id="by what a watch told"),
        pytest.param(
            [("refresh", pod("a", "19")), ("upsert", pod("a", "20"))], id="by an answer that a watch confirmed"
        ),
        pytest.param([("refresh", pod("a", "20")), ("replace", keyed(pod("a", "20")))], id="by an answer in a list"),
        pytest.param([("upsert", pod("b", "21")), ("refresh", pod("a", "22"))], id="by another object"),
    ],
)
def test_a_list_from_a_restored_backup_is_believed(cache, before):
    """Versions begin again where the backup was made, so everything that is held looks newer."""
    cache.replace(keyed(pod("a", "8"), pod("b", "7")))
    for verb, what in before:
        getattr(cache, verb)(what)
    cache.replace(keyed(pod("a", "8"), pod("b", "7")))
    assert held(cache) == {"a": ("uid-a", "8"), "b": ("uid-b", "7")}
    cache.upsert(pod("a", "12"))
    assert held(cache)["a"] == ("uid-a", "12")


def test_an_answer_is_ahead_of_one_list_at_the_most(cache):
    """The next list began after it, and lacks it only where the server was restored from a backup."""
    cache.replace(keyed(pod("a", "8")))
    cache.refresh(pod("a", "20"))
    cache.replace(keyed(pod("a", "8")))
    assert held(cache) == {"a": ("uid-a", "20")}
    cache.replace(keyed(pod("a", "8")))
    assert held(cache) == {"a": ("uid-a", "8")}


@given(st.lists(st.sampled_from("ab"), max_size=12), st.randoms(use_true_random=False))
def test_however_answers_and_the_watch_race_versions_only_grow(writes, random):
    """Each write is told twice: by its answer, whenever that is read, and by the watch, in order."""
    versions = {"a": [1], "b": [2]}
    for version, name in enumerate(writes, 3):
        versions[name].append(version)
    cache = Cache()
    cache.replace(keyed(pod("a", "1"), pod("b", "2")))
    seen = []
    cache.on_change(lambda old, new: seen.append((new.metadata.name, int(new.metadata.resource_version))))
    watch = [(cache.upsert, name, version) for version, name in enumerate(writes, 3)]
    answers = [(cache.refresh, name, version) for version, name in enumerate(writes, 3)]
    random.shuffle(answers)
    while watch or answers:
        line = watch if not answers or (watch and random.random() < 0.5) else answers
        take_in, name, version = line.pop(0)
        take_in(pod(name, str(version)))
    for name in "ab":
        told = [version for who, version in seen if who == name]
        assert told == sorted(set(told))
        assert told[-1] == versions[name][-1]
