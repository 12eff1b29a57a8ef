"""Alibaba's pod lists (cluster-trace-gpu-v2023): CSV, times in seconds, GPUs in thousandths.

`num_gpu` GPUs of `gpu_milli` thousandths each; a pod with several wants as many whole GPUs, together. Pods without a
GPU are passed over. CPU, memory, `gpu_spec` and the rest are not used: a fleet here has GPUs only.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from instaslice.errors import BadInput
from instaslice.geometry import Model
from instaslice.simulate.errors import BadTrace, unreadable
from instaslice.simulate.fractions import FractionAs, of_fraction
from instaslice.simulate.jobs import Job, Trace, Wants, trace

NEEDED: Final = ("num_gpu", "gpu_milli", "creation_time", "deletion_time")
UNUSED: Final = ("name", "cpu_milli", "memory_mib", "gpu_spec", "qos", "pod_phase", "scheduled_time")


def read(path: Path, model: Model, reading: FractionAs) -> Trace:
    """All pods that want a GPU. A life is deletion minus scheduling, or minus creation where it was never scheduled.

    Raises BadTrace with the line for an unknown or missing column, a number that is none, a time before 0, an end
    before its start, or a fraction that no profile of the model covers.
    """
    skipped = 0
    jobs = []
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            for number, row in _rows(path, lines):
                job = _job(path, number, row, model, reading)
                if job is None:
                    skipped += 1
                else:
                    jobs.append(job)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(unreadable(path, error)) from None
    return trace(jobs, skipped)


def _rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(lines)
    columns = next(reader, [])
    for name in columns:
        if name not in NEEDED and name not in UNUSED:
            raise BadTrace(path, 1, f"unknown column {name!r}; known are {', '.join((*NEEDED, *UNUSED))}")
    for name in NEEDED:
        if name not in columns:
            raise BadTrace(path, 1, f"column {name!r} is missing")
    for values in reader:
        if len(values) != len(columns):
            raise BadTrace(path, reader.line_num, f"{len(values)} values for {len(columns)} columns")
        yield reader.line_num, dict(zip(columns, values, strict=True))


def _job(path: Path, line: int, row: Mapping[str, str], model: Model, reading: FractionAs) -> Job | None:
    gpus = _number(path, line, row, "num_gpu")
    if not gpus:
        return None
    wants = _wants(path, line, gpus, _number(path, line, row, "gpu_milli"), model, reading)
    created = _number(path, line, row, "creation_time")
    began = _number(path, line, row, "scheduled_time") if row.get("scheduled_time") else created
    ended = _number(path, line, row, "deletion_time")
    if ended < began:
        raise BadTrace(path, line, f"deletion_time {ended} is before its start at {began}")
    return Job(created * 1000, (ended - began) * 1000, wants)


def _wants(path: Path, line: int, gpus: int, milli: int, model: Model, reading: FractionAs) -> Wants:
    if gpus > 1:
        milli = 1000
    profile = of_fraction(model, milli / 1000, reading) if milli else None
    if profile is None:
        raise BadTrace(path, line, f"gpu_milli {milli} is no part of one {model.name}; it lies between 1 and 1000")
    return (profile.name,) * gpus


def _number(path: Path, line: int, row: Mapping[str, str], column: str) -> int:
    text = row[column]
    try:
        number = int(text)
    except ValueError:
        raise BadTrace(path, line, f"{column} {text!r} is not a whole number") from None
    if number < 0:
        raise BadTrace(path, line, f"{column} {number} is below 0")
    return number
