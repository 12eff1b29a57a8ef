"""Why a demand did not fit, as text fit for an Event, and what would help."""

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from instaslice.placement import moves
from instaslice.placement.demands import Admits, Demand, Share
from instaslice.placement.fleet import Fleet
from instaslice.placement.policy import Policy
from instaslice.placement.pools import Pool


class Short(Enum):
    """What a refused demand is short of."""

    GPUS = "no GPU could ever hold it"
    PROFILE = "no GPU has the profile"
    NODES = "the nodes with room do not admit the pod"
    MEMORY = "no GPU has enough free memory"
    START = "memory is free, but in the wrong places"
    ENGINES = "memory is free, media engines are not"
    TOGETHER = "each slice fits, all of them on one node do not"


@dataclass(frozen=True, slots=True)
class Reason:
    short: Short
    text: str
    helped: Demand | None = None
    """What moves may make room for; None if no moves could."""
    about: str = ""
    """The slice that does not fit; "" where it is all of them together."""


class Refusal:
    """No admitted node can hold the demand now.

    The reason is computed when first read, and what would help when the text is first read, so that an unread refusal
    costs nothing: read it before the fleet changes.
    """

    def __init__(self, fleet: Fleet, policy: Policy, demand: Demand) -> None:
        self.demand = demand
        self._fleet = fleet
        self._policy = policy

    @property
    def short(self) -> Short:
        return self._reason.short

    @property
    def about(self) -> str:
        """The slice that does not fit; "" where it is all of them together."""
        return self._reason.about

    @property
    def reason(self) -> str:
        """The text without what would help: for a caller who knows that no node could ever hold the demand."""
        return self._reason.text

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        reason = self._reason
        return reason.text + (self._help(reason.helped) if reason.helped is not None else "")

    @cached_property
    def _reason(self) -> Reason:
        if not len(self._fleet):
            return Reason(Short.GPUS, "there is no GPU in the fleet")
        if not self.demand.wants:
            return Reason(Short.GPUS, "the pod asks for no slice")
        for want in dict.fromkeys(self.demand.wants):
            reason = self._of_share(want) if isinstance(want, Share) else self._of_profile(want)
            if reason is not None:
                return replace(reason, about=str(want))
        count = len(self.demand.wants)
        text = f"each of the {count} slices would fit, but no node has room for all at once"
        return Reason(Short.TOGETHER, text, self.demand)

    def _of_profile(self, profile: str) -> Reason | None:
        pools = [pool for pool in self._fleet.pools if pool.model.has(profile)]
        if not pools:
            has = "; ".join(f"{p.model.name} has {_names(p)}" for p in self._fleet.pools) or "no GPU is cut by MIG"
            return Reason(Short.PROFILE, f"profile {profile} does not exist on any node ({has})")
        if not any(pool.model.profile(profile).starts for pool in pools):
            names = ", ".join(pool.model.name for pool in pools)
            return Reason(
                Short.GPUS, f"where {profile} may start on {names} is not known until its driver has been asked"
            )
        if not any(map(len, pools)):
            return Reason(Short.GPUS, f"every GPU that has {profile} is closed")
        single = Demand((profile,), self.demand.admits)
        counts = _FitCounts(self._fleet, pools, profile, self.demand.admits)
        if counts.fitting_admitted:
            return None
        if counts.fitting or not counts.admitted:
            room = _gpus(counts.fitting, "has", "have") + " room for" if counts.fitting else "GPUs have"
            return Reason(Short.NODES, f"{room} {profile}, but no such node admits the pod")
        if counts.windows:
            hold = _gpus(counts.windows, "holds", "hold")
            text = f"{hold} enough free memory for {profile} but not the media engines that it needs"
            return Reason(Short.ENGINES, text, single)
        if counts.enough:
            hold = _gpus(counts.enough, "holds", "hold")
            text = f"{hold} enough free memory for {profile} but no legal start"
            return Reason(Short.START, text, single)
        text = f"{profile} needs {counts.size} free memory slices on one GPU; the most that one has is {counts.most}"
        return Reason(Short.MEMORY, text, single)

    def _of_share(self, want: Share) -> Reason | None:
        pools = self._fleet.shared
        if not pools:
            return Reason(Short.GPUS, f"{want} was asked for, but no GPU is shared by memory")
        if all(want.of(pool.memory_mib) > pool.memory_mib for pool in pools):
            return Reason(Short.GPUS, f"{want} was asked for; the largest has {pools[-1].memory_mib} MiB")
        admits = self.demand.admits
        fitting = [gpu for pool in pools for gpu in pool.fitting(want.of(pool.memory_mib))]
        if any(admits is None or admits(self._fleet.node_of[gpu].name) for gpu in fitting):
            return None
        if fitting:
            return Reason(
                Short.NODES, f"{_gpus(len(fitting), 'has', 'have')} room for {want}, but no such node admits the pod"
            )
        most = max(pool.most_free() for pool in pools)
        return Reason(Short.MEMORY, f"{want} was asked for; the most that is free on one is {most} MiB")

    def _help(self, demand: Demand) -> str:
        found = moves.find(self._fleet, self._policy, demand, lambda _: True)
        if found is None:
            return "; a slice must end or a GPU be added"
        count = len(found.moves)
        return f"; {count} move{'s' if count > 1 else ''} would free {'one' if len(demand.wants) == 1 else 'it'}"


class _FitCounts:
    """Counts of GPUs that have a profile, by what they could do for it."""

    def __init__(self, fleet: Fleet, pools: list[Pool], profile: str, admits: Admits | None) -> None:
        self.fitting = self.fitting_admitted = self.admitted = self.windows = self.enough = self.most = 0
        self.size = min(pool.model.profile(profile).size for pool in pools)
        for pool in pools:
            states, p = pool.states, pool.model.profile(profile)
            index = states.profile(profile)
            assert index is not None
            for state, gpus in pool.by_state().items():
                admitted = sum(admits is None or admits(fleet.node_of[gpu].name) for gpu in gpus)
                taken = states.mask(state)
                self.admitted += admitted
                if states.choices[index][state]:
                    self.fitting += len(gpus)
                    self.fitting_admitted += admitted
                elif any(not taken & k.mask for k in p.placements()):
                    self.windows += admitted
                if states.free[state] >= p.size:
                    self.enough += admitted
                if admitted:
                    self.most = max(self.most, states.free[state])


def _gpus(count: int, one: str, several: str) -> str:
    return f"1 GPU {one}" if count == 1 else f"{count} GPUs {several}"


def _names(pool: Pool) -> str:
    return ", ".join(p.name for p in pool.model.profiles)
