"""Cut a stream of chunks into lines. Pure.

A line may be longer than any buffer: an object in a watch may be 1.5 MB.
"""


class LineSplitter:
    """Feed it chunks, get whole lines."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends. Work is linear in the bytes fed, however small the
        chunks."""
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            self._begun.append(chunk)
            return []
        if self._begun:
            lines[0] = b"".join([*self._begun, lines[0]])
        rest = lines.pop()
        self._begun = [rest] if rest else []
        return lines
