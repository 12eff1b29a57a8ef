"""MIGBench's traces: JSON lines, times in milliseconds; also the simplest format to write by hand.

A job either names its profile and duration, or states its memory and its work; then the profile is the smallest that
holds the memory, and the work, in percent of a GPU times milliseconds, takes as long as that profile needs for it.
"""

from pathlib import Path

import msgspec

from instaslice.errors import BadInput
from instaslice.simulate.errors import BadTrace, unreadable
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.fractions import of_amount, percent
from instaslice.simulate.jobs import Job, Trace, Wants, trace


class MigbenchJob(msgspec.Struct, rename={"job_id": "jobID", "arrival_ms": "arrivalMS"}, forbid_unknown_fields=True):
    """One job. `profiles` is ours, for a pod with several slices; the rest is MIGBench's."""

    arrival_ms: int
    job_id: str = ""
    format: str = ""
    computeCoreMS: int = 0  # noqa: N815 - as the file has it
    memoryMB: int = 0  # noqa: N815
    minComputePercent: int = 0  # noqa: N815
    durationMS: int = 0  # noqa: N815
    profile: str = ""
    profiles: list[str] = []


def read(path: Path, plan: FleetPlan) -> Trace:
    """All jobs, by arrival. Raises BadTrace with the line for an unknown key, a time before 0, a profile that the
    fleet has not, or a job that states neither duration nor work."""
    decoder = msgspec.json.Decoder(MigbenchJob)
    jobs = []
    try:
        with path.open("rb") as lines:
            for number, text in enumerate(lines, 1):
                if not text.strip():
                    continue
                try:
                    jobs.append(_job(path, number, decoder.decode(text), plan))
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise BadTrace(path, number, str(error)) from None
    except OSError as error:
        raise BadInput(unreadable(path, error)) from None
    return trace(jobs)


def _job(path: Path, number: int, job: MigbenchJob, plan: FleetPlan) -> Job:
    if job.arrival_ms < 0:
        raise BadTrace(path, number, f"arrivalMS {job.arrival_ms} is below 0")
    if job.profile or job.profiles:
        if job.durationMS < 1:
            raise BadTrace(path, number, f"durationMS {job.durationMS} of a job with a profile; it must be above 0")
        return Job(job.arrival_ms, job.durationMS, _named(path, number, job, plan))
    if job.computeCoreMS < 1 or job.memoryMB < 1:
        raise BadTrace(path, number, "a job needs a profile and durationMS, or computeCoreMS and memoryMB above 0")
    model = plan.main_model
    profile = of_amount(model, job.memoryMB, job.minComputePercent)
    if profile is None:
        asked = f"{job.memoryMB} MB and {job.minComputePercent} percent"
        raise BadTrace(path, number, f"no profile of {model.name} has {asked} of compute")
    return Job(job.arrival_ms, -(-job.computeCoreMS // percent(model, profile)), (profile.name,))


def _named(path: Path, number: int, job: MigbenchJob, plan: FleetPlan) -> Wants:
    try:
        return tuple(plan.profile(name) for name in (job.profiles or [job.profile]))
    except BadInput as error:
        raise BadTrace(path, number, str(error)) from None
