"""What `kubectl get instaslices` prints of a node, from the rest of its status."""

from collections import Counter

from instaslice.api.instaslice import Health, InstasliceStatus, PreparedSlice, SliceState, Summary


def summary(status: InstasliceStatus) -> Summary:
    """Free memory counts healthy GPUs only: nothing can be placed on another. In GB, as models are labelled."""
    sizes = {model.name: (model.memory_slices, model.memory_gb) for model in status.models}
    taken: Counter[str] = Counter()
    for held in status.slices:
        if holds_slot(held):
            taken[held.gpu] += held.size
    free = total = 0.0
    for gpu in status.gpus:
        slices, gb = sizes[gpu.model]
        total += gb
        if gpu.health is Health.HEALTHY:
            free += gb * (slices - taken[gpu.uuid]) / slices
    return Summary(
        gpus=_gpus(status), slices=sum(map(holds_slot, status.slices)), free_memory=f"{free:.0f}/{total:.0f} GB"
    )


def holds_slot(held: PreparedSlice) -> bool:
    """Whether nothing else can be where this slice is."""
    # A failed create left nothing, or left what the agent reports as foreign.
    return held.state not in (SliceState.DELETED, SliceState.FAILED)


def _gpus(status: InstasliceStatus) -> str:
    # ASCII: kubectl aligns columns by bytes.
    counts = Counter(gpu.model for gpu in status.gpus)
    text = ", ".join(f"{count}x {model}" for model, count in sorted(counts.items())) or "none"
    sick = sum(gpu.health is Health.UNHEALTHY for gpu in status.gpus)
    return f"{text} ({sick} unhealthy)" if sick else text
