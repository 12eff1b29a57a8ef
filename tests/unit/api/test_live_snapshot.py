"""A snapshot that watches keep current: what cannot be read is named for as long as that is so."""

import asyncio

from small_worlds import pod

from instaslice.api.live_snapshot import WatchedKind
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS
from instaslice.kube.errors import Unreadable
from instaslice.kube.meta import key_of


async def test_an_object_is_named_until_it_can_be_read_or_is_gone():
    changed = asyncio.Event()
    kind = WatchedKind(None, PODS, SystemClock(), changed)
    odd = pod("odd", "1g.5gb")
    error = Unreadable("Pod team-a/odd cannot be read: Expected `int`")

    kind.set_unread(odd.metadata, error)
    assert changed.is_set()
    assert [f"{each.object}: {each.why}" for each in kind.unread] == ["pod team-a/odd: cannot be read: Expected `int`"]
    kind.objects.upsert(odd)
    assert kind.unread == []

    kind.set_unread(odd.metadata, error)
    assert list(kind.objects) == [odd], "the last version that could be read stays"
    kind.objects.replace({})
    assert kind.unread == []
    kind.set_unread(odd.metadata, error)
    kind.objects.replace({key_of(odd): odd})
    assert kind.unread == []
