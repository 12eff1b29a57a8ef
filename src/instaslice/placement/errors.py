"""What is wrong with a request to hold or to give back.

    InstasliceError
    └── FleetError
        ├── UnknownGpu     no GPU of that name in the fleet
        ├── NotFree        the slot is taken, or no legal one: the plan is stale, or the ledger is wrong
        └── NotHeld        nothing of that kind is there to give back

A demand that finds no room is no error: it is answered with a Refusal.
"""

from instaslice.errors import InstasliceError


class FleetError(InstasliceError):
    """What was asked of the fleet contradicts what it holds."""


class UnknownGpu(FleetError):
    """No GPU of that name in the fleet."""


class NotFree(FleetError):
    """The slot is taken, or is not one that this GPU has."""


class NotHeld(FleetError):
    """Nothing of that kind is held there."""
