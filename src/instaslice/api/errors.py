"""What can be wrong with a pod that asks for slices.

InstasliceError
└── BadInput
    └── Rejected   the pod is not admitted; the message goes to whoever created it
"""

from instaslice.errors import BadInput


class Rejected(BadInput):
    """The pod cannot be admitted as it is; the message says what would be."""
