"""The tables of docs/metrics.md, from `metrics`; written by `make generate`."""

from typing import Final

from instaslice.observe.metrics import LABELS, METRICS, Bound, Component, Metric

BEGIN, END = "<!-- generated: make generate -->\n", "<!-- end of what is generated -->\n"
BOUNDS: Final = {
    Bound.LISTED: "a fixed list",
    Bound.MODELS: "the GPU models of the cluster",
    Bound.API: "the kinds that we use, and HTTP's codes",
    Bound.NODE: "what exists on the node now",
}


def updated(page: str) -> str:
    """The page, with the part between the two marks written again. Raises ValueError where they are missing."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"docs/metrics.md has no lines {BEGIN.strip()!r} and {END.strip()!r} any more; put them back")
    return f"{before}{BEGIN}{tables()}{END}{after}"


def tables() -> str:
    """Metrics by process, then their labels."""
    groups = {
        "Every process": [each for each in METRICS if len(each.components) > 1],
        **{f"The {each}": [one for one in METRICS if one.components == (each,)] for each in Component},
    }
    parts = [f"### {title}\n\n{_metrics(metrics)}" for title, metrics in groups.items()]
    return "\n" + "\n".join([*parts, f"### Labels\n\n{_labels()}"]) + "\n"


def _metrics(metrics: list[Metric]) -> str:
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.help} |"
        for each in metrics
    ]
    return "\n".join(["| metric | type | labels | |", "|---|---|---|---|", *rows]) + "\n"


def _labels() -> str:
    rows = [f"| `{name}` | {text} | {BOUNDS[bound]} |" for name, (bound, text) in LABELS.items()]
    return "\n".join(["| label | | bounded by |", "|---|---|---|", *rows]) + "\n"
