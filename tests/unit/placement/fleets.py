"""Small fleets, written as a test reads them."""

from instaslice.geometry import models
from instaslice.placement import Demand, Fleet, GpuId, Grant, NodeName, Placer, Plan, policies

A100 = models.named("A100-40GB")
PLACEABLE = tuple(model for model in models.known() if model.placements != "unknown")


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
