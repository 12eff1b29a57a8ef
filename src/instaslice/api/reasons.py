"""The reasons of our conditions and Events, with what each means. docs/reference/conditions.md is generated from here.

Programs compare them, so a reason that was released keeps its name.
"""

from enum import StrEnum


class PodReason(StrEnum):
    """Reasons of the condition `gpu.das.com/SliceReady` of a pod, and of the Events that go with it."""

    SLICE_READY = "SliceReady"
    """True: its slices exist, and it may start on their node."""
    CREATING = "Creating"
    """Slices are reserved for it and being created, or exist and the gate is about to be removed."""
    WAITING = "Waiting"
    """No node can take it now; the message says what is short and what would help."""
    WAITING_FOR_VOLUME = "WaitingForVolume"
    """It has a claim that does not exist or is not bound."""
    GATED = "Gated"
    """Another gate comes first, such as Kueue's."""
    BAD_REQUEST = "BadRequest"
    """It asks for what no node can serve; it was created where the webhook is not called."""
    NODE_NOT_SERVING = "NodeNotServing"
    """Its slices exist, but no pod can start on their node now; the gate stays."""
    UNGATE_REFUSED = "UngateRefused"
    """The API server refuses the removal of the gate; the message has its answer."""
    NOT_BOUND = "NotBound"
    """Past its gate, and the scheduler has not bound it in time."""
    GPU_UNHEALTHY = "GpuUnhealthy"
    """It runs on a GPU that is reported unhealthy."""
    SLICE_LOST = "SliceLost"
    """A slice of it is gone: destroyed by somebody else, its GPU or its node lost."""
    SLICE_RELEASED = "SliceReleased"
    """It never started and its slices were released: it has failed. Create it again."""
    SET_ASIDE = "SetAside"
    """InstaSlice cannot handle it and leaves it alone until it changes; the message says why."""


class ServingReason(StrEnum):
    """Reasons of the condition `Ready` of an Instaslice object."""

    SERVING = "Serving"
    """True: pods can start with slices on the node."""
    KUBELET_SILENT = "KubeletSilent"
    """The kubelet does not answer the agent's device plugin: no pod with slices can start there."""
    NO_DRIVER = "NoDriver"
    """The GPUs of the node cannot be used at all; the message says why."""


class GpusReason(StrEnum):
    """Reasons of the condition `GpusReady` of an Instaslice object. Where GPUs are unhealthy it is the worst of
    theirs."""

    ALL_WELL = "AllWell"
    """True: every GPU of the node can be used."""


class NodeEvent(StrEnum):
    """Reasons of Events on an Instaslice object, beside those of its conditions when they become false."""

    SLICE_FAILED = "SliceFailed"
    """The hardware refused to create a slice; the pod is placed elsewhere."""
    NO_SLICE = "NoSlice"
    """A container could not be given a slice: none is reserved for its pod, or the file that brings it could not be
    written; the message says which."""
    GPU_LEFT_ALONE = "GpuLeftAlone"
    """A GPU of the node is not used; the message says why."""
    BAD_FAULT = "BadFault"
    """The annotation that breaks emulated GPUs cannot be read."""
