"""What can be wrong with a pod that asks for slices.

InstasliceError
└── BadInput
    └── Refused   the pod is turned away; the message goes to whoever made it
"""

from instaslice.errors import BadInput


class Rejected(BadInput):
    """The pod cannot be admitted as it is; the message says what would be."""
