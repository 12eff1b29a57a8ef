"""One line per event: time, level, message, and what it is about as keys, as text or JSON.

A call says what it is about with `extra=about(...)`. The uid of a pod finds its moments in all three processes.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

KEYS: Final = ("pod", "uid", "request", "node", "gpu", "seconds")
"""What an event can be about, in the order of a line: a pod as `namespace/name`, its uid, the uid of an admission
request, a node, a GPU by UUID, and how long something took."""
FORMATS: Final = ("text", "json")
LONGEST_VALUE: Final = 317
"""A namespace, a slash and the name of a pod. What a webhook logs was not validated yet, so it may be anything."""
LONGEST_MESSAGE: Final = 4000
LEVELS: Final = ("debug", "info", "warning", "error")


def about(
    *,
    pod: str | None = None,
    uid: str | None = None,
    request: str | None = None,
    node: str | None = None,
    gpu: str | None = None,
    seconds: float | None = None,
) -> dict[str, object]:
    """For `extra` of a logging call: the keys of its line. What is None or empty is left out."""
    known = {"pod": pod, "uid": uid, "request": request, "node": node, "gpu": gpu}
    keys: dict[str, object] = {key: value for key, value in known.items() if value}
    if seconds is not None:
        keys["seconds"] = round(seconds, 3)
    return keys


def configure(form: str = "text", level: str = "info") -> None:
    """Have all of the process's logging go to stderr in this form, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


class TextFormatter(logging.Formatter):
    """`2026-11-19T12:00:00.000Z INFO message pod=team-a/train uid=…`; a traceback follows on lines of its own.

    What is not printable is escaped, and a value that could be taken for several is quoted as in JSON.
    """

    def format(self, record: logging.LogRecord) -> str:
        keys = " ".join(f"{key}={_quoted(value)}" for key, value in _keys(record).items())
        message = _escaped(_message(record).replace("\n", " "))
        line = f"{_time(record)} {record.levelname} {message}{' ' if keys else ''}{keys}"
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n".join([line, *map(_escaped, trace)])


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, keys, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_keys(record),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _keys(record: logging.LogRecord) -> dict[str, object]:
    found = {key: getattr(record, key, None) for key in KEYS}
    return {
        key: _cut(value, LONGEST_VALUE) if isinstance(value, str) else value
        for key, value in found.items()
        if value is not None
    }


def _message(record: logging.LogRecord) -> str:
    return _cut(record.getMessage(), LONGEST_MESSAGE)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and not any(each in text for each in ' "=') else json.dumps(text)


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")
