"""What can be wrong with a request to take or release a slot.

    InstasliceError
    └── FleetError
        ├── UnknownGpu     no GPU of that name in the fleet
        ├── NotFree        the slot is taken, or no legal one: the plan is stale, or the ledger is wrong
        └── NotHeld        nothing like that is held there

A demand that does not fit is no error: the answer is a Refusal.
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
