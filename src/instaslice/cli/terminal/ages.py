"""How long ago something was, in its largest unit: `4 min`."""

from datetime import datetime


def age(since: datetime | None, now: datetime) -> str:
    """How long ago, in its largest unit."""
    if since is None:
        return ""
    seconds = max(0, int((now - since).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
