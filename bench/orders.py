"""Do the slices of a layout that fits a GPU still fit when they arrive one at a time?

Every distinct arrival order of the 32 layouts of an A100-40GB that InstaSlice's own tests list (openshift/
instaslice-operator, pkg/scheduler/plugins/mig/mig_test.go, TestFilterValidCombinations) is played on one empty GPU.
An order is stuck when some slice has no legal start. No policy knows what will arrive.

`least possible` is exact: over all policies that decide by what arrived so far, the fewest of these orders that get
stuck, found by walking the tree of all prefixes. It knows these 657 orders and is not a policy for anything else. `with
pairs` is the same over policies that place the first slice so that every profile fits that can fit beside it.

    python bench/orders.py
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from instaslice.geometry import States, models
from instaslice.placement import Demand, Fleet, GpuId, NodeName, Placer, Plan, Policy, policies

MODEL = models.named("A100-40GB")
# How many slices of each profile, in this order, a layout has.
PROFILES = ("7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.10gb", "1g.5gb+me", "1g.5gb")
LAYOUTS = [
    "0000115",
    "0000106",
    "0001113",
    "0001104",
    "0001211",
    "0001202",
    "0001300",
    "0010111",
    "0010102",
    "0010013",
    "0011100",
    "0011011",
    "0011002",
    "0010200",
    "0012000",
    "0010004",
    "0100111",
    "0100102",
    "0101100",
    "0110000",
    "0100200",
    "1000000",
    "0000213",
    "0000204",
    "0002111",
    "0002102",
    "0002200",
    "0020000",
    "0000311",
    "0000302",
    "0003100",
    "0000400",
]

Order = tuple[str, ...]


def layouts() -> Iterator[Counter[str]]:
    for digits in LAYOUTS:
        yield Counter({profile: int(count) for profile, count in zip(PROFILES, digits, strict=True) if count != "0"})


def orders(left: Counter[str]) -> Iterator[Order]:
    """All distinct orders of a multiset."""
    if not left:
        yield ()
    for profile in list(left):
        rest = left - Counter({profile: 1})
        for order in orders(rest):
            yield (profile, *order)


def is_stuck(order: Order, policy: Policy) -> bool:
    fleet = Fleet()
    fleet.add_gpu(GpuId("gpu"), NodeName("node"), MODEL)
    placer = Placer(fleet, policy)
    for profile in order:
        answer = placer.place(Demand((profile,)))
        if not isinstance(answer, Plan):
            return True
        placer.commit(answer)
    return False


def keep_every_pair() -> dict[str, set[int]]:
    """For each profile the placements on the empty GPU after which every profile fits that can fit beside it."""
    states = States.of(MODEL)
    kept = {}
    for p, profile in enumerate(MODEL.profiles):
        beside = {k: {q for q in range(len(MODEL.profiles)) if states.choices[q][states.after[0][k]]}
                  for k in states.choices[p][0]}  # fmt: skip
        most = max(map(len, beside.values()), default=0)
        kept[profile.name] = {k for k, fitting in beside.items() if len(fitting) == most}
    return kept


def most_finished(all_orders: Iterable[Order], first: Mapping[str, Collection[int]] | None = None) -> int:
    """The most orders that one online policy can finish, if it knows that one of these arrives, all equally likely.
    `first` limits the placements of each profile on the empty GPU."""
    states = States.of(MODEL)

    def best(suffixes: list[Order], state: int) -> int:
        finished = sum(not order for order in suffixes)
        for profile in {order[0] for order in suffixes if order}:
            following = [order[1:] for order in suffixes if order and order[0] == profile]
            index = states.profile(profile)
            assert index is not None
            choices: Collection[int] = states.choices[index][state]
            if first is not None and state == 0:
                choices = first[profile]
            ways = (states.after[state][k] for k in choices)
            finished += max((best(following, to) for to in ways), default=0)
        return finished

    return best(list(all_orders), 0)


def main() -> None:
    every = [order for layout in layouts() for order in orders(layout)]
    stuck = {name: sum(is_stuck(order, policies.named(name)) for order in every) for name in policies.names()}
    least = len(every) - most_finished(every)
    with_pairs = len(every) - most_finished(every, keep_every_pair())
    print(f"{len(LAYOUTS)} layouts, {len(every)} orders")
    for name, count in stuck.items():
        print(f"  {name:10} {count:4} stuck  {count / len(every):6.1%}")
    print(f"  {'least':10} {least:4} stuck  {least / len(every):6.1%}")
    print(f"  {'with pairs':10} {with_pairs:4} stuck  {with_pairs / len(every):6.1%}")
    ours = stuck[policies.DEFAULT]
    print(
        f"RESULT firstfit_stuck={stuck['first-fit'] / len(every):.4f} ours_stuck={ours / len(every):.4f} "
        f"least_possible={least / len(every):.4f} with_pairs={with_pairs / len(every):.4f}"
    )


if __name__ == "__main__":
    main()
