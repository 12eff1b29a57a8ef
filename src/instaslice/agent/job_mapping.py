"""Tells NVIDIA's dcgm-exporter which pod has which slice: a file `<gpu>.<gi>` for each, with the line `namespace/pod`.

dcgm-exporter reads them with --hpc-job-mapping-dir and puts `hpc_job="namespace/pod"` on the metrics of the GPU
instance. The folder may be shared, with a batch system say: only files that `.instaslice` lists are ours to remove.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from instaslice.api.instaslice import Allocation, InstasliceStatus
from instaslice.errors import BadInput
from instaslice.files import write_atomically

log = logging.getLogger(__name__)

JOB_FILE: Final = re.compile(r"\d+\.\d+", re.ASCII)
RECORD: Final = ".instaslice"
"""The names of our files as a JSON list: written before a file is, and after it was removed."""


class JobMapping:
    """The files of one node."""

    def __init__(self, folder: Path) -> None:
        """Takes over what an earlier process left. Raises BadInput where the folder cannot be written."""
        self._folder = folder
        self._ours: dict[str, str] = {}
        """File → what it says; empty where an earlier process wrote it."""
        self._foreign: set[str] = set()
        """Files of others that stand where ours would; said once."""
        try:
            self._ours = dict.fromkeys(_recorded(folder / RECORD), "")
            self._record(self._ours)
        except OSError as error:
            raise BadInput(
                f"--dcgm-job-mapping-dir {folder}: {error.strerror or error}; give a folder that the agent may write"
            ) from None

    def update(self, status: InstasliceStatus, allocations: Mapping[str, Allocation]) -> None:
        """Have a file for each slice that exists and was allocated, and none for any other. Failing to is logged: no
        slice waits for it."""
        try:
            wanted = jobs(status, allocations).items()
            self._write({name: job for name, job in wanted if name in self._ours or not self._is_of_another(name)})
        except OSError as error:
            log.warning("dcgm-exporter is not told which pods have slices: %s: %s", self._folder, error)

    def _write(self, wanted: Mapping[str, str]) -> None:
        if wanted == self._ours:
            return
        self._record(self._ours.keys() | wanted.keys())
        for name in sorted(self._ours.keys() - wanted.keys()):
            (self._folder / name).unlink(missing_ok=True)
            del self._ours[name]
        for name, job in wanted.items():
            if self._ours.get(name) != job:
                write_atomically(self._folder / name, f"{job}\n".encode(), mode=0o644)
                self._ours[name] = job
        self._record(self._ours)

    def _is_of_another(self, name: str) -> bool:
        taken = (self._folder / name).exists()
        if taken and name not in self._foreign:
            log.warning("%s is not ours and stays as it is; remove it to have our pods there", self._folder / name)
        self._foreign = self._foreign | {name} if taken else self._foreign - {name}
        return taken

    def _record(self, names: Iterable[str]) -> None:
        write_atomically(self._folder / RECORD, msgspec.json.encode(sorted(names)), mode=0o644, sync=True)


def jobs(status: InstasliceStatus, allocations: Mapping[str, Allocation]) -> dict[str, str]:
    """The file of each slice that exists and was allocated, and its line."""
    indexes = {gpu.uuid: gpu.index for gpu in status.gpus}
    return {
        f"{indexes[each.gpu]}.{each.gi}": f"{found.pod.namespace}/{found.pod.name}"
        for each in status.slices
        if each.gi is not None and each.mig_uuid is not None and each.gpu in indexes
        if (found := allocations.get(each.id)) is not None
    }


def _recorded(file: Path) -> list[str]:
    """What an earlier process listed. A list that cannot be read is logged and left out: no node is without an agent
    because of it."""
    try:
        names = msgspec.json.decode(file.read_bytes(), type=list[str])
    except FileNotFoundError:
        return []
    except msgspec.DecodeError as error:
        problem = f"does not list our files ({error})"
    else:
        # The folder is shared: nobody else's file is removed because its name stands in here.
        strange = [each for each in names if not JOB_FILE.fullmatch(each)]
        if not strange:
            return names
        problem = f"lists {strange[0]!r}, which is no file of ours"
    log.warning("%s %s and is written again; remove the files `<gpu>.<gi>` beside it that are ours", file, problem)
    return []
