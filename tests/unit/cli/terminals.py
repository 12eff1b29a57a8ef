"""Programs on a terminal of their own, as a person would run them."""

import os
import pty
import select
import time

HANGS = 60.0
"""Seconds after which a wait counts as hung."""


class Terminal:
    """One program, and what it has shown so far."""

    def __init__(self, words, env):
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.execvpe(words[0], words, env)
        self.shown = ""

    def type(self, text):
        os.write(self._fd, text.encode())

    def until(self, text):
        """Read until it has been shown."""
        end = time.monotonic() + HANGS
        while text not in self.shown:
            ready, _, _ = select.select([self._fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"{text!r} did not come:\n{self.shown}"
            self.shown += os.read(self._fd, 65536).decode(errors="replace")

    def rest(self):
        """All that it shows until it ends."""
        try:
            while True:
                self.shown += os.read(self._fd, 65536).decode(errors="replace")
        except OSError:  # the other end of a terminal is closed with the program
            return self.shown

    def close(self):
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        os.close(self._fd)
