"""The programs of a cluster: started so that they outlive us, found again, and ended without a trace.

A program is known by its pid and start time (a pid alone may be another's after a reboot), written to a file the
moment it runs. Should we be killed between the two, it is still found: every program carries the cluster's
directory in its environment.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from instaslice.files import write_atomically
from instaslice.local.errors import LocalError, NotStarted
from instaslice.local.layout import Layout

MARK = "INSTASLICE_CLUSTER"
"""Environment variable that every program of a cluster, and what it starts, carries."""


def _frugal(name: str) -> dict[str, str]:
    """How a Go program spares the cores that it shares with all others of a cluster.

    With the small heap of a young cluster it spends half of its time on collecting garbage: a few hundred MB of memory
    buy that back, and `make bench-burst` gains a quarter. All but the API server have little to do and many threads
    that look for it: on half of the cores they spend an eighth less.
    """
    half = {} if name == "kube-apiserver" else {"GOMAXPROCS": str(max(1, (psutil.cpu_count() or 2) // 2))}
    return {"GOGC": "400", **half}


class Running(msgspec.Struct, frozen=True):
    """What is written about a started program."""

    pid: int
    started: float
    argv: list[str]

    @property
    def wrapped(self) -> bool:
        """Started through `nsenter`, which stays and waits for the program."""
        return Path(self.argv[0]).name == "nsenter"

    def process(self) -> psutil.Process | None:
        """That process, running or dying; None where it is gone or the pid is another's."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.pid)
            # /proc counts in clock ticks: two readings of one process may differ by one.
            if abs(found.create_time() - self.started) < 1:
                return found
        return None


class Processes:
    """The programs of one cluster, by component name."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        """Start a component unless it runs. Its output goes to `logs/NAME.log`, after what is there."""
        if self.find(name):
            return
        if dying := self._recorded(name):
            _wait_gone([dying])
        # One that was started and never recorded, because we were killed in between, would hold the ports. What a
        # wrapper became has the end of its command line.
        _kill([stray for stray in self.strays() if list(argv)[-len(_words(stray)) :] == _words(stray)])
        self.layout.run.mkdir(exist_ok=True)
        self.layout.logs.mkdir(exist_ok=True)
        with self.log(name).open("ab") as log:
            started = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Not where the user happens to be, which they may want to remove.
                cwd=self.layout.root,
                env={**_frugal(name), **os.environ, **(env or {}), MARK: str(self.layout.root)},
            )
        try:
            born = psutil.Process(started.pid).create_time()
        except psutil.NoSuchProcess:
            born = time.time()
        record = Running(started.pid, born, list(argv))
        write_atomically(self._file(name), msgspec.json.encode(record))

    def find(self, name: str) -> psutil.Process | None:
        """The running component, or None. Where a wrapper entered namespaces for it: the program, not the wrapper."""
        record = self._record(name)
        found = record.process() if record else None
        if record is None or found is None or not _alive(found):
            return None
        if record.wrapped:
            with contextlib.suppress(psutil.NoSuchProcess):
                return next(iter(found.children()), found)
        return found

    def _recorded(self, name: str) -> psutil.Process | None:
        """What was started under that name, running or dying, the wrapper where there is one."""
        record = self._record(name)
        return record.process() if record else None

    def _record(self, name: str) -> Running | None:
        try:
            return msgspec.json.decode(self._file(name).read_bytes(), type=Running)
        except FileNotFoundError:
            return None

    def argv(self, name: str) -> list[str] | None:
        """The command line that the component was last started with; None where it never was."""
        record = self._record(name)
        return record.argv if record else None

    def require(self, name: str) -> None:
        """Raises NotStarted, with the end of its log, where the component does not run."""
        if self.find(name) is None:
            raise NotStarted(f"{name} ended while starting: {self.last_words(name)} (log: {self.log(name)})")

    def names(self) -> list[str]:
        return sorted(entry.stem for entry in self.layout.run.glob("[!.]*.json"))

    def kill(self, name: str) -> None:
        """End one component at once (SIGKILL), and its wrapper where it has one, and wait until it is gone."""
        _kill([found for found in (self.find(name), self._recorded(name)) if found])

    def kill_all(self) -> None:
        """End every program of the cluster: the recorded ones, then strays by their mark."""
        _kill([found for name in self.names() if (found := self._recorded(name))])
        for _ in range(20):
            strays = self.strays()
            if not strays:
                return
            _kill(strays)
        raise LocalError(f"{self.layout.name}: processes {[stray.pid for stray in self.strays()]} do not end")

    def strays(self) -> list[psutil.Process]:
        """Every live process that carries this cluster's mark, recorded or not."""
        mine, found = str(self.layout.root), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and process.environ().get(MARK) == mine and _alive(process):
                    found.append(process)
        return found

    def wait(self, name: str, ready: Callable[[], bool], *, seconds: float = 60) -> None:
        """Until `ready()`. Raises NotStarted with the end of the log when the component ends or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            self.require(name)
            if time.monotonic() > deadline:
                raise NotStarted(
                    f"{name} is not ready after {seconds:.0f} s: {self.last_words(name)} (log: {self.log(name)})"
                )
            # The components say that they are ready only when asked.
            time.sleep(0.02)

    def log(self, name: str) -> Path:
        return self.layout.logs / f"{name}.log"

    def last_words(self, name: str) -> str:
        """The last line of a component's log that says something."""
        try:
            tail = self.log(name).read_text(errors="replace")[-20000:].splitlines()
        except FileNotFoundError:
            return "it wrote nothing"
        telling = [line.strip() for line in tail if line.strip()]
        errors = [line for line in telling if line.startswith(("Error", "error", "E1", "F1", "panic:", "run.go"))]
        return (errors or telling or ["it wrote nothing"])[-1][:400]

    def _file(self, name: str) -> Path:
        return self.layout.run / f"{name}.json"


def _kill(processes: list[psutil.Process]) -> None:
    """Crash-only, like everything here: no component of a cluster that goes away has anything to save."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _wait_gone(processes)


def _wait_gone(processes: list[psutil.Process]) -> None:
    deadline = time.monotonic() + 10
    while not all(map(_gone, processes)) and time.monotonic() < deadline:
        # They are not our children: nobody tells us of their end.
        time.sleep(0.01)


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline() or [""]
    return [""]


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _gone(process: psutil.Process) -> bool:
    """Ended, and its ports and files are closed. When its parent buries it is not ours to wait for; but a zombie is not
    gone before its last thread is."""
    with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
        if process.ppid() == os.getpid():
            os.waitpid(process.pid, os.WNOHANG)
        if not process.is_running():
            return True
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    return True
