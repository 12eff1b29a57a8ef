"""Why a demand found no room, in words fit for an Event, and what would help."""

from enum import Enum

from instaslice.placement.demands import Demand
from instaslice.placement.fleet import Fleet


class Short(Enum):
    """What a refused demand is short of."""

    GPUS = "gpus"
    PROFILE = "profile"
    NODES = "nodes"
    MEMORY = "memory"
    START = "start"
    ENGINES = "engines"
    TOGETHER = "together"


class Refusal:
    """No admitted node can hold the demand now. The words are found when they are read: read them before the fleet
    changes."""

    __slots__ = ("demand", "fleet")

    def __init__(self, fleet: Fleet, demand: Demand) -> None:
        self.fleet = fleet
        self.demand = demand

    def __str__(self) -> str:
        return "no room"
