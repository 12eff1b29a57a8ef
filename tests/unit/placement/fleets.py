"""Small fleets, written as a test reads them."""

from random import Random

from instaslice.geometry import States, models
from instaslice.placement import Demand, Fleet, GpuId, Grant, NodeName, Placer, Plan, Regime, policies, rehearsal
from instaslice.placement.portfolio import rankings
from instaslice.placement.rehearsal import RehearsalPool
from instaslice.placement.value_tables import mix_of

A100 = models.named("A100-40GB")
PLACEABLE = tuple(model for model in models.known() if model.provenance != "unknown")


def node_of(gpu):
    """`a0` and `a1` are on node a, `b0` is on node b."""
    return NodeName(gpu[0])


def fleet(*gpus, model=A100, held=()):
    """A fleet of these GPUs; `held` lists (gpu, profile, start)."""
    made = Fleet()
    for gpu in gpus:
        made.add_gpu(GpuId(gpu), node_of(gpu), model)
    for gpu, profile, start in held:
        made.take(grant(gpu, profile, start, model))
    return made


def grant(gpu, profile, start, model=A100):
    return Grant(node_of(gpu), GpuId(gpu), profile, start, model.profile(profile).size)


def placer(made, policy=policies.DEFAULT):
    return Placer(made, policies.named(policy))


def place(made, *wants, policy=policies.DEFAULT, admits=None):
    return placer(made, policy).place(Demand(wants, admits))


def spots(answer):
    """A plan as (gpu, start) pairs."""
    assert isinstance(answer, Plan), str(answer)
    return [(each.gpu, each.start) for each in answer.grants]


def picture(made):
    """All that a fleet holds, to compare before and after."""
    return {
        gpu: sorted(made.held(gpu)) for node in made.nodes.values() for gpu in map(made.names.__getitem__, node.gpus)
    }


def judged(recipe, asked, regime, gpus=8, runs=12):
    """How well a recipe does for A100s on jobs of this mix that nobody has seen: more is better in every regime."""
    model = A100.only([profile.name for profile in A100.profiles if profile.name in asked])
    kinds, sizes = States.of(model).kinds, [profile.size for profile in model.profiles]
    mix = mix_of(kinds, asked)
    rate = gpus * kinds.slices / sum(share * size for share, size in zip(mix, sizes, strict=True))
    random, total = Random(77), 0.0
    for _ in range(runs):
        jobs = rehearsal.poisson_arrivals(mix, rate, round(rate if regime is Regime.FILL else 12 * rate), random)
        pool = RehearsalPool(model, rankings(kinds, recipe, mix), gpus)
        match regime:
            case Regime.LOSS:
                total += rehearsal.loss(pool, jobs, sizes, 3.0)
            case Regime.FILL:
                total += rehearsal.fill(pool, jobs, sizes)
            case Regime.QUEUE:
                total -= rehearsal.queue(pool, jobs, 3.0)
    return total / runs
