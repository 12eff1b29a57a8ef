"""What can go wrong with a local cluster. Every message is one line and names the remedy.

LocalError
├── NotAvailable    a program could not be found, built or downloaded
└── NotStarted      a component did not come up; the message carries the end of its log
"""

from instaslice.errors import InstasliceError


class LocalError(InstasliceError):
    """A local cluster could not be started, found or stopped."""


class NotAvailable(LocalError):
    """A program is not on this machine and could not be obtained."""


class NotStarted(LocalError):
    """A component was started and is not ready, or has ended."""
