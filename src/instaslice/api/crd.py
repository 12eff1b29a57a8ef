"""The definition of the Instaslice object, from its structs. `make generate` writes it into the chart."""

from typing import Any, Final

from instaslice.api.instaslice import INSTASLICES, Instaslice, InstasliceSpec, InstasliceStatus
from instaslice.api.schema import Schema, structural

NAME: Final = f"{INSTASLICES.plural}.{INSTASLICES.group}"

COLUMNS: Final = (
    ("GPUs", "string", ".status.summary.gpus", "How many GPUs of which model"),
    ("Slices", "integer", ".status.summary.slices", "Slices that exist now"),
    ("Free", "string", ".status.summary.freeMemory", "GPU memory that no slice takes, of all"),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether the agent of the node serves"),
    ("Age", "date", ".metadata.creationTimestamp", ""),
)


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition as a document to apply."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": INSTASLICES.group,
            "scope": "Cluster",
            "names": {
                "kind": INSTASLICES.kind,
                "listKind": f"{INSTASLICES.kind}List",
                "plural": INSTASLICES.plural,
                "singular": INSTASLICES.kind.lower(),
            },
            "versions": [
                {
                    "name": INSTASLICES.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*each) for each in COLUMNS],
                    "schema": {"openAPIV3Schema": _schema()},
                }
            ],
        },
    }


def _schema() -> Schema:
    # Metadata has the server's own schema, which a definition may not repeat.
    return {
        "type": "object",
        "description": Instaslice.__doc__,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(InstasliceSpec),
            "status": structural(InstasliceStatus),
        },
    }


def _column(name: str, kind: str, path: str, description: str) -> dict[str, str]:
    column = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "description": description} if description else column
