"""Write docs/values.md, the reference of the chart's values, from values.yaml and its schema.

Run by `make generate`.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
CHART = ROOT / "charts" / "instaslice"
PAGE = ROOT / "docs" / "values.md"
HEAD = """# Values of the chart

Generated from `charts/instaslice/values.yaml` and its schema by `make generate`. What to set for what: \
[install.md](install.md). A value without a default here leaves the choice to the process.
"""


def page() -> str:
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    parts = [HEAD]
    for key, node in yaml.compose(text).value:
        about = _resolved(schema["properties"][key.value], schema["$defs"])
        rows = list(_rows(text.splitlines(), key, node, about, f"{key.value}"))
        table = "\n".join(f"| `{path}` | {default} | {meaning} |" for path, default, meaning in rows)
        parts.append(f"## `{key.value}`\n\n| value | default | |\n|---|---|---|\n{table}\n")
    return "\n".join(parts)


def _rows(
    lines: list[str], key: yaml.Node, node: yaml.Node, schema: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str, str]]:
    """Path, default and meaning of every value below a key; what Kubernetes defines is shown as a whole."""
    if "properties" in schema and isinstance(node, yaml.MappingNode):
        for inner, value in node.value:
            yield from _rows(lines, inner, value, schema["properties"][inner.value], f"{path}.{inner.value}")
        return
    default = json.dumps(yaml.safe_load(yaml.serialize(node)))
    choices = [json.dumps(each) for each in schema.get("enum", ()) if each is not None]
    about = [_comment(lines, key.start_mark.line)]
    if not about[0]:
        sys.exit(f"{path}: say above it in values.yaml what it is")
    about += [f"One of {', '.join(f'`{each}`' for each in choices)}."] if choices else []
    yield path, f"`{default}`" if default not in ("null", '""') else "", " ".join(filter(None, about))


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with what its references stand for in their place."""
    if isinstance(schema, dict):
        name = schema.get("$ref", "").removeprefix("#/$defs/")
        return {key: _resolved(each, definitions) for key, each in (definitions[name] if name else schema).items()}
    return schema


def _comment(lines: list[str], at: int) -> str:
    """What stands directly above a line."""
    found: list[str] = []
    while at and lines[at - 1].lstrip().startswith("#"):
        at -= 1
        found.insert(0, lines[at].lstrip().removeprefix("#").strip())
    return " ".join(found).replace("|", "\\|")


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
