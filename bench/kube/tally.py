"""Count events and measure the CPU seconds of this process until the last one. Shared by the three clients.

Prints two numbers: the CPU seconds until all existing pods have arrived, after which the changes may begin, and the CPU
seconds until the last change.
"""

import os
import time


class Tally:
    def __init__(self, there: int, changes: int) -> None:
        self._there = there
        self._all = there + changes
        self._count = 0
        self._began = 0.0

    def begin(self) -> None:
        """Imports are done and the connection is established."""
        self._began = time.process_time()

    def count(self) -> None:
        self._count += 1
        if self._count == self._there:
            self._say()
        if self._count == self._all:
            self._say()
            # How a client shuts down is not compared.
            os._exit(0)

    def _say(self) -> None:
        print(time.process_time() - self._began, flush=True)
