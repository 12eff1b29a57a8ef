"""Models, profiles and placements of sliceable GPUs: data and arithmetic that know nothing else of the project.

names       `1g.5gb+me` read and printed, as NVIDIA writes it and as a Kubernetes resource name
profiles    one slice size: how much it takes and where it may start
memory_ask  so many GB in one slice, of whatever profile holds them
models      a GPU type: the ones known by name, from `models.json`
discovered  a GPU type as NVML reports it, known by name or not
states      every way in which one GPU can be cut, and what leads from one to the next
kinds       states that are equivalent from now on, and the most slices that a GPU holds
errors      unknown names, and geometries that no GPU has
"""

from instaslice.geometry.errors import TooManyLayouts, UnknownModel, UnknownProfile
from instaslice.geometry.kinds import Kinds
from instaslice.geometry.memory_ask import MemoryAsk
from instaslice.geometry.models import Model
from instaslice.geometry.names import ProfileName
from instaslice.geometry.profiles import Engines, Placement, Profile
from instaslice.geometry.states import States

__all__ = [
    "Engines",
    "Kinds",
    "MemoryAsk",
    "Model",
    "Placement",
    "Profile",
    "ProfileName",
    "States",
    "TooManyLayouts",
    "UnknownModel",
    "UnknownProfile",
]
