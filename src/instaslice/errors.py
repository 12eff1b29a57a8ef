"""The root of every error that this project raises on purpose.

    InstasliceError
    ├── BadInput            the user can correct it: a flag, a file, a name
    ├── KubeError           (kube/errors.py) what an API server answered
    ├── DriverError         (drivers/errors.py) what hardware refused
    └── LocalError          (local/errors.py) a local cluster that cannot be started or stopped

Each package adds its own branch. A message names the object, what was tried and the remedy, in one line: the
command line prints it as it is and exits with 1.
"""

from collections.abc import Iterator


class InstasliceError(Exception):
    """Base of all; catch this to catch everything that is ours."""


class BadInput(InstasliceError):
    """What the user typed or wrote cannot be right; the message says what would be."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """What really happened to tasks that ran side by side: a group of groups says only that there was something."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error
