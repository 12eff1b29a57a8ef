"""What a client reports of its requests, for metrics. Whoever counts them implements `Observer`."""

from typing import Final, Protocol

NO_ANSWER: Final = "none"
"""In place of a status code where no server answered."""
RAW: Final = "raw"
"""In place of a resource where a request is for none."""


class Observer(Protocol):
    """Called on the event loop for every request, retries included; must not block."""

    def answered(self, verb: str, resource: str, code: str) -> None:
        """The verb is the client's (`get`, `apply`), the resource a plural (`pods`) or RAW, the code a status or
        NO_ANSWER."""
        ...

    def watch_ended(self, resource: str, reason: str) -> None:
        """A watch has to be opened again; `reason` is a word of `watch.END_REASONS`."""
        ...


class Unobserved:
    """Counts nothing."""

    def answered(self, verb: str, resource: str, code: str) -> None: ...

    def watch_ended(self, resource: str, reason: str) -> None: ...


UNOBSERVED: Final = Unobserved()
