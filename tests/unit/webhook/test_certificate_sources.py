"""Replicas, one Secret and one configuration: they converge on one authority, and trust comes before use."""

import asyncio
import datetime

import msgspec
import pytest
from fake_clock import FakeClock
from handshakes import served

from instaslice.errors import BadInput
from instaslice.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound, Unreachable
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.observe.certificates import renew
from instaslice.webhook import certificate_sources
from instaslice.webhook.certificate_sources import SECRETS, STATE, Secret, SecretSource, start
from instaslice.webhook.certificates import DAY, AuthorityState, Lifetimes, advance
from instaslice.webhook.manifests import HOOK, ClientConfig, Configuration, Hook, bundle

SECRET = Key("instaslice-system", "tls")
LIFETIMES = Lifetimes()


class Server:
    """Holds one Secret and one configuration, as the API server does: a write by a stale version is a conflict."""

    def __init__(self, *hooks):
        self.secret = None
        self.configuration = Configuration(metadata=ObjectMeta(name="hooks"), webhooks=list(hooks)) if hooks else None
        self.patches = 0
        self.version = 0
        self.meanwhile = None
        """What another does between a read of the Secret and the write that follows from it; once."""

    async def get(self, resource, key):
        found = self.secret if resource is SECRETS else self.configuration
        if found is None:
            raise NotFound(f"get {key}: 404", status=404)
        return found

    async def _others(self):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()

    def put(self, data):
        self.version += 1
        meta = ObjectMeta(namespace=SECRET.namespace, name=SECRET.name, resource_version=str(self.version))
        self.secret = Secret(metadata=meta, data=data)

    async def create(self, resource, secret):
        await self._others()
        if self.secret is not None:
            raise AlreadyExists("create: 409", status=409)
        self.put(secret.data)

    async def merge(self, resource, key, body):
        await self._others()
        if body["metadata"].get("resourceVersion", self.secret.metadata.resource_version) != str(self.version):
            raise Conflict("merge: 409", status=409)
        self.put({**self.secret.data, **body["data"]})

    async def patch(self, resource, key, ops):
        self.patches += 1
        hooks = list(self.configuration.webhooks)
        for op in ops:
            index, field = int(op.path.split("/")[2]), op.path.partition("/clientConfig/")[2]
            if op.op == "test":
                assert hooks[index].name == op.value
            elif op.op == "add" and field == "caBundle":
                hooks[index] = msgspec.structs.replace(hooks[index], client_config=ClientConfig(ca_bundle=op.value))
        self.configuration = msgspec.structs.replace(self.configuration, webhooks=hooks)

    @property
    def state(self):
        return msgspec.json.decode(self.secret.data[STATE], type=AuthorityState)

    @property
    def trusts(self):
        return {hook.name: hook.client_config.ca_bundle for hook in self.configuration.webhooks}


OURS = Hook(name=HOOK, client_config=ClientConfig())


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def server():
    return Server(OURS)


@pytest.fixture
def replica(server, clock):
    def make():
        return SecretSource(server, SECRET, ["127.0.0.1"], configuration="hooks", clock=clock)

    return make


async def test_the_first_step_makes_an_authority_is_trusted_and_serves(server, replica):
    one = replica()
    await one.refresh()
    assert server.trusts == {HOOK: bundle(server.state.trusted)}
    assert await served(one.context) == server.state.leaf.parsed


async def test_two_replicas_that_start_at_once_have_one_authority(server, replica):
    one, other = replica(), replica()
    server.meanwhile = other.refresh
    await one.refresh()
    assert one.state == other.state == server.state
    for each in (one, other):
        assert await served(each.context) == server.state.leaf.parsed
    assert server.trusts == {HOOK: bundle(server.state.trusted)}


@pytest.mark.parametrize("left", [None, {"note": b"theirs"}], ids=["deleted", "emptied"])
async def test_a_secret_that_is_lost_while_replicas_run_is_written_again_as_it_was(server, replica, left):
    one, other = replica(), replica()
    await one.refresh()
    await other.refresh()
    first = server.state
    server.secret = None
    if left is not None:
        server.put(left)
    await one.refresh()
    # The other one has not looked since, and has to be trusted all the same.
    assert server.trusts == {HOOK: bundle(first.trusted)}
    assert one.state == other.state == server.state == first
    assert server.secret.data == {**(left or {}), STATE: msgspec.json.encode(first)}


async def test_two_replicas_that_find_the_secret_deleted_at_once_agree(server, replica):
    one, other = replica(), replica()
    await one.refresh()
    await other.refresh()
    first = server.state
    server.secret = None
    server.meanwhile = other.refresh
    await one.refresh()
    assert one.state == other.state == server.state == first


async def test_two_replicas_that_renew_at_once_serve_one_certificate(server, replica, clock):
    one, other = replica(), replica()
    await one.refresh()
    await other.refresh()
    first = server.state
    clock.advance(61 * DAY.total_seconds())
    server.meanwhile = other.refresh
    await one.refresh()
    assert server.state.leaf != first.leaf
    assert one.state == other.state == server.state
    assert await served(one.context) == server.state.leaf.parsed


async def test_a_replica_serves_what_another_renewed(server, replica, clock):
    one, other = replica(), replica()
    await one.refresh()
    await other.refresh()
    clock.advance(61 * DAY.total_seconds())
    await other.refresh()
    await one.refresh()
    assert await served(one.context) == other.state.leaf.parsed


async def test_nobody_signs_with_an_authority_that_was_not_trusted_before(server, replica, clock):
    """Who announced it was killed before it told the API server."""
    announced = advance(advance(None, clock.now(), ["127.0.0.1"], LIFETIMES), clock.now(), ["127.0.0.1"], LIFETIMES)
    following = advance(None, clock.now(), ["127.0.0.1"], LIFETIMES).authority
    announced = msgspec.structs.replace(announced, next=following, announced=clock.now() - datetime.timedelta(days=1))
    server.put({STATE: msgspec.json.encode(announced)})
    one = replica()
    await one.refresh()
    assert server.trusts == {HOOK: bundle(announced.trusted)}
    assert server.state == announced
    assert await served(one.context) == announced.leaf.parsed
    await one.refresh()
    assert server.state.authority == following


async def test_an_announced_authority_is_trusted_in_the_same_step(server, replica, clock):
    one = replica()
    await one.refresh()
    clock.advance(3300 * DAY.total_seconds())
    await one.refresh()
    assert server.state.next is not None
    assert server.trusts == {HOOK: bundle(server.state.trusted)}


async def test_a_step_in_which_nothing_is_due_writes_nothing(server, replica):
    one = replica()
    await one.refresh()
    version, patches = server.version, server.patches
    await one.refresh()
    await replica().refresh()
    assert (server.version, server.patches) == (version, patches)


async def test_a_configuration_that_comes_later_is_filled_in(replica, server):
    server.configuration = None
    one = replica()
    await one.refresh()
    assert await served(one.context) == server.state.leaf.parsed
    server.configuration = Configuration(metadata=ObjectMeta(name="hooks"), webhooks=[OURS])
    await one.refresh()
    assert server.trusts == {HOOK: bundle(server.state.trusted)}


async def test_what_is_due_is_done_where_there_is_no_configuration(replica, server, clock):
    server.configuration = None
    one = replica()
    await one.refresh()
    first = server.state
    clock.advance(61 * DAY.total_seconds())
    await one.refresh()
    assert server.state.leaf != first.leaf


async def test_of_two_things_that_are_due_a_step_does_one(replica, server, clock):
    """The second may build on the first only when every API server has heard of it."""
    server.configuration = None
    one = replica()
    await one.refresh()
    first = server.state
    clock.advance(3300 * DAY.total_seconds())
    await one.refresh()
    assert server.state.next is not None
    assert server.state.leaf == first.leaf
    await one.refresh()
    assert server.state.leaf != first.leaf


async def test_hooks_of_others_in_the_configuration_are_left_alone(replica, server):
    theirs = Hook(name="theirs.example.com", client_config=ClientConfig(ca_bundle="theirs"))
    server.configuration = Configuration(metadata=ObjectMeta(name="hooks"), webhooks=[theirs, OURS])
    await replica().refresh()
    assert server.trusts == {"theirs.example.com": "theirs", HOOK: bundle(server.state.trusted)}


async def test_an_empty_secret_is_filled_and_keeps_what_others_have_there(replica, server):
    server.put({"note": b"theirs"})
    one = replica()
    await one.refresh()
    assert server.secret.data["note"] == b"theirs"
    assert server.state == one.state


async def test_a_state_that_cannot_be_read_is_never_written_over(replica, server):
    server.put({STATE: b"{}"})
    with pytest.raises(
        BadInput, match=r"secret instaslice-system/tls: .*delete the Secret: .* otherwise a new authority is made"
    ):
        await replica().refresh()
    assert server.secret.data == {STATE: b"{}"}


def broken(state, part, **changed):
    """The state with another certificate or key in one of its pairs."""
    return msgspec.structs.replace(state, **{part: msgspec.structs.replace(getattr(state, part), **changed)})


@pytest.mark.parametrize("part", ["authority", "leaf"])
@pytest.mark.parametrize("field", ["certificate", "key"])
async def test_a_state_without_usable_pairs_is_neither_trusted_nor_served(replica, server, part, field):
    one = replica()
    await one.refresh()
    good, trusted = server.state, server.trusts
    for odd in ("garbage", "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        server.put({STATE: msgspec.json.encode(broken(good, part, **{field: odd}))})
        with pytest.raises(BadInput, match="delete the Secret"):
            await one.refresh()
        assert server.trusts == trusted
        assert await served(one.context) == good.leaf.parsed


class Steps:
    """A source of which each step ends as listed; afterwards all go well."""

    def __init__(self, *ends):
        self.ends = list(ends)
        self.taken = 0

    async def refresh(self):
        self.taken += 1
        if self.ends and (end := self.ends.pop(0)):
            raise end


async def turns():
    """Let whatever can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("no answer"), id="the API server is away"),
        pytest.param(Forbidden("get secrets: 403", status=403), id="it has not read its roles yet"),
    ],
)
async def test_the_first_step_is_tried_until_it_goes(clock, error):
    steps = Steps(error, error)
    beginning = asyncio.create_task(start(steps, clock))
    for _ in range(2):
        await turns()
        assert not beginning.done()
        clock.advance(certificate_sources.RETRY_SECONDS)
    await beginning
    assert steps.taken == 3


async def test_what_no_waiting_mends_ends_the_first_step(clock):
    with pytest.raises(BadInput):
        await start(Steps(BadInput("not a pair")), clock)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(KubeError("500", status=500), id="the API server fails"),
        pytest.param(Unreachable("no answer"), id="the API server is away"),
        pytest.param(FileNotFoundError("tls.crt"), id="a file is being replaced"),
        pytest.param(BadInput("state.json cannot be read"), id="somebody has written garbage"),
    ],
)
async def test_a_step_that_fails_is_no_reason_to_stop(clock, error):
    steps = Steps(error)
    keeping = asyncio.create_task(renew(steps, clock, every=10))
    await turns()
    assert steps.taken == 0
    for taken in (1, 2, 3):
        clock.advance(10)
        await turns()
        assert steps.taken == taken
    assert not keeping.done()
    keeping.cancel()


async def test_an_error_that_nobody_expects_ends_the_process(clock):
    keeping = asyncio.create_task(renew(Steps(KeyError("x")), clock, every=10))
    await turns()
    clock.advance(10)
    with pytest.raises(KeyError):
        await keeping
