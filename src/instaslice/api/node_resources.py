"""What GPUs could hold at most, by the names of our resources: what a node advertises.

Pure. The numbers do not change as slices come and go.
"""

from collections import Counter
from collections.abc import Iterable

from instaslice.api import names
from instaslice.geometry import Model, ProfileName, States


def total(gpus: Iterable[Model]) -> dict[str, int]:
    """Resource name → how many of it these GPUs could hold at most."""
    found: Counter[str] = Counter()
    for model, count in Counter(map(States.of, gpus)).items():
        for resource, most in _most(model).items():
            found[resource] += most * count
    return dict(found)


_known: dict[States, dict[str, int]] = {}


def _most(states: States) -> dict[str, int]:
    """For one GPU. Cached: a thousand nodes have few models, and `States.of` returns one object for each."""
    if states not in _known:
        most = {profile.name: states.kinds.most(p)[0] for p, profile in enumerate(states.profiles)}
        _known[states] = {
            **{names.resource_name(ProfileName.parse(name)): count for name, count in most.items() if count},
            names.ANY_SLICE: states.most_slices(),
            names.MEMORY: states.most_label_gb(),
        }
    return _known[states]
