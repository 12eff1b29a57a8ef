"""Whatever happens in whatever order, kills and boots included: no pod is disturbed and all ends as it should."""

from agent_bench import A100, Bench, Killed
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from instaslice.api.instaslice import EMPTY_STATUS, AllocationState, SliceState
from instaslice.api.summary import holds_slot
from instaslice.geometry import Placement, States

STATES = States.of(A100)
WANTED = (AllocationState.CREATING, AllocationState.CREATED, AllocationState.UNGATED)
GRACE = 60.0


class Life(RuleBasedStateMachine):
    """A controller that keeps the contract, an agent that is killed at will, and hardware that misbehaves."""

    def __init__(self):
        super().__init__()
        self.bench = Bench(gpus=2, grace=GRACE)
        self.bench.work()
        self.names = iter(range(10**6))
        self.destroyed = []
        self.lost_by_boot = set()
        plain = self.bench.driver.destroy

        def destroy(doomed):
            if doomed.whole:  # nothing runs in half a slice
                self.destroyed.append((doomed.gpu, doomed.placement.profile, doomed.placement.start))
            plain(doomed)

        self.bench.driver.destroy = destroy

    # The controller, which sees only what was written ----------------------------------------------------------------

    def taken(self, gpu):
        """Placements that the controller counts as taken on a GPU, as indexes into the states."""
        told = {each.id: each for each in self.bench.written.slices}
        held = {(each.profile, each.start) for each in self.promised(gpu, told)}
        held |= {(each.profile, each.start) for each in told.values() if each.gpu == gpu and holds_slot(each)}
        return [STATES.placement(*each) for each in held]

    def promised(self, gpu, told):
        deleted = {each.id for each in told.values() if each.state is SliceState.DELETED}
        return [each for each in self.bench.spec if each.gpu == gpu and each.id not in deleted]

    @rule(data=st.data())
    def promise(self, data):
        gpu = data.draw(st.sampled_from([0, 1]))
        state = STATES.state(self.taken(self.bench.gpus[gpu]))
        if state < 0:
            return
        legal = [k for k, to in enumerate(STATES.after[state]) if to >= 0]
        if not legal:
            return
        # Few places, so that the same one is often given away again.
        chosen = STATES.placements[data.draw(st.sampled_from(legal[:4]))]
        self.put(self.bench.wants(f"a-{next(self.names)}", chosen.profile, chosen.start, gpu=gpu))

    @rule(data=st.data(), state=st.sampled_from([AllocationState.DELETING, AllocationState.UNGATED]))
    def turn(self, data, state):
        told = {each.id: each.state for each in self.bench.written.slices}
        able = [each for each in self.bench.spec if each.state in WANTED]
        if state is AllocationState.UNGATED:
            able = [each for each in able if told.get(each.id) is SliceState.CREATED]
        if able:
            chosen = data.draw(st.sampled_from(able))
            self.put(self.bench.wants(chosen.id, chosen.profile, chosen.start, state, self.index(chosen.gpu)))

    @rule(data=st.data())
    def a_pod_starts(self, data):
        """All the way: left to chance it happens once in a hundred lives."""
        self.promise(data)
        self.watched(self.bench.work)
        told = {each.id: each.state for each in self.bench.written.slices}
        for each in self.bench.spec:
            if each.state in WANTED and told.get(each.id) is SliceState.CREATED:
                self.put(
                    self.bench.wants(each.id, each.profile, each.start, AllocationState.UNGATED, self.index(each.gpu))
                )

    @rule()
    def forget_what_is_deleted(self):
        told = {each.id: each.state for each in self.bench.written.slices}
        left = [each for each in self.bench.spec if told.get(each.id) is not SliceState.DELETED]
        self.bench.write(*left)

    @rule()
    def the_object_is_deleted(self):
        """And no controller is there to promise what runs once more."""
        self.bench.driver.faults.replace()
        found = {(held.gpu, held.placement.profile, held.placement.start) for held in self.hardware()}
        self.bench.users |= dict.fromkeys(self.running() & found, "kept: its pod uses it")
        self.bench.write()
        self.bench.written = EMPTY_STATUS
        self.bench.restart()
        for seconds in (0, GRACE, 1):
            self.bench.clock.advance(seconds)
            self.watched(self.bench.work)

    @rule()
    def the_pods_without_an_object_end(self):
        self.bench.users.clear()

    # The agent ------------------------------------------------------------------------------------------------------

    @rule()
    def work(self):
        self.watched(self.bench.work)

    @rule()
    def killed_before_it_reports(self):
        self.watched(lambda: self.bench.work(report=False))
        self.bench.restart()

    @rule(steps=st.integers(0, 6))
    def killed_in_the_middle(self, steps):
        self.bench.driver.dies_in = steps
        try:
            self.watched(self.bench.work)
        except Killed:
            self.bench.restart()
        self.bench.driver.dies_in = None

    @rule(seconds=st.sampled_from([1.0, 40.0, 90.0]))
    def time_goes_by(self, seconds):
        self.bench.clock.advance(seconds)

    def watched(self, work):
        """No slice of a pod that may run is ever destroyed."""
        self.destroyed.clear()
        running = self.running() | self.bench.users.keys()
        work()
        assert not running & set(self.destroyed)

    def running(self):
        """NodePaths of slices whose pods may run, as far as the agent has not given them up."""
        failed = {each.id for each in self.bench.written.slices if each.state is SliceState.FAILED}
        ungated = [each for each in self.bench.spec if each.state is AllocationState.UNGATED]
        gone = {(each.gpu, each.profile, each.start) for each in self.bench.spec if each.id in failed}
        return {(each.gpu, each.profile, each.start) for each in ungated} - gone

    def hardware(self):
        return [held for gpu in self.bench.gpus for held in self.bench.driver.slices(gpu)]

    # The hardware ---------------------------------------------------------------------------------------------------

    @rule()
    def boot(self):
        self.lost_by_boot |= {each.id for each in self.bench.spec if each.state is AllocationState.UNGATED}
        self.bench.driver.reboot()
        self.bench.users.clear()

    @rule(gpu=st.sampled_from([0, 1]), start=st.integers(0, 6))
    def held(self, gpu, start):
        self.bench.driver.faults.hold(self.bench.gpus[gpu], start, "pid 1")

    @rule(gpu=st.sampled_from([0, 1]))
    def refused(self, gpu):
        self.bench.driver.faults.refuse(self.bench.gpus[gpu])

    @rule(gpu=st.sampled_from([0, 1]))
    def lost(self, gpu):
        self.bench.driver.faults.fail(self.bench.gpus[gpu])

    @rule()
    def well_again(self):
        self.bench.driver.faults.replace()

    # What must hold -------------------------------------------------------------------------------------------------

    @invariant()
    def no_two_reports_hold_one_slot(self):
        for gpu in self.bench.gpus:
            taken = 0
            for each in self.bench.written.slices:
                placement = Placement(each.profile, each.start, each.size)
                # What waits for its slot to become free says creating beside what still is deleting.
                if each.gpu == gpu and holds_slot(each) and each.state is not SliceState.CREATING:
                    assert not taken & placement.mask, self.bench.written.slices
                    taken |= placement.mask

    def teardown(self):
        self.bench.driver.faults.replace()
        self.bench.users.clear()
        for _ in range(4):
            self.bench.clock.advance(GRACE + 1)
            self.watched(self.bench.work)
        states = self.bench.states()
        assert set(states) == {each.id for each in self.bench.spec}, "nothing is left that nobody asked for"
        expected = []
        for each in self.bench.spec:
            if each.state in WANTED:
                assert states[each.id] in ({"failed"} if each.id in self.lost_by_boot else {"created", "failed"})
                if states[each.id] == "created":
                    expected.append((each.gpu, each.profile, each.start))
            else:
                assert states[each.id] == "deleted"
        found = [(held.gpu, held.placement.profile, held.placement.start, held.whole) for held in self.hardware()]
        assert sorted(found) == sorted((*each, True) for each in expected)

    def put(self, allocation):
        self.bench.write(*(each for each in self.bench.spec if each.id != allocation.id), allocation)

    def index(self, gpu):
        return self.bench.gpus.index(gpu)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
