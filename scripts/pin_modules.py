"""Write `go.mod` and `go.sum` of every pinned module from `instaslice.local.components`.

Needs the network (a Go module proxy); run by `make generate`. A module whose files already have the pinned
version is left alone, so a second run changes nothing.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from instaslice.local import components
from instaslice.local.components import Module

ROOT = Path(components.__file__).parent / "modules"


def go(directory: Path, *words: str) -> str:
    return subprocess.run(["go", *words], cwd=directory, check=True, stdout=subprocess.PIPE, text=True).stdout


def staging(module: Module) -> list[str]:
    """The modules that live in Kubernetes' own tree: exactly those its go.mod requires at v0.0.0."""
    with tempfile.TemporaryDirectory() as scratch:
        found = json.loads(go(Path(scratch), "mod", "download", "-json", f"{module.path}@v{module.version}"))
    required = json.loads(go(Path(found["Dir"]), "mod", "edit", "-json"))["Require"]
    return [line["Path"] for line in required if line["Version"] == "v0.0.0"]


def pin(module: Module) -> None:
    directory = ROOT / module.directory
    directory.mkdir(parents=True, exist_ok=True)
    for old in ("go.mod", "go.sum"):
        (directory / old).unlink(missing_ok=True)
    go(directory, "mod", "init", f"instaslice.local/{module.name}")
    # The oldest Go that will do, not the one at hand: `tidy` raises it where a dependency asks for more.
    edits = [f"-require={module.path}@v{module.version}", "-go=1.26.0"]
    edits += [f"-tool={module.package(command)}" for command in module.commands]
    if module.staged:
        sibling = "v0." + module.version.split(".", 1)[1]
        edits += [f"-replace={path}={path}@{sibling}" for path in staging(module)]
    go(directory, "mod", "edit", *edits)
    go(directory, "mod", "tidy")


def pinned(module: Module) -> bool:
    directory = ROOT / module.directory
    if not (directory / "go.sum").exists():
        return False
    described = json.loads(go(directory, "mod", "edit", "-json"))
    versions = {line["Path"]: line["Version"] for line in described.get("Require", ())}
    tools = {line["Path"] for line in described.get("Tool", ())}
    return versions.get(module.path) == f"v{module.version}" and tools == {
        module.package(command) for command in module.commands
    }


def main() -> None:
    wanted = [components.kubernetes(version) for version in components.KUBERNETES_VERSIONS]
    wanted += components.modules()[1:]
    for module in wanted:
        if pinned(module):
            print(f"{module.directory}: as pinned")
            continue
        print(f"{module.directory}: pinning", flush=True)
        pin(module)
    known = {module.directory for module in wanted}
    stray = sorted(entry.name for entry in ROOT.iterdir() if entry.name not in known)
    if stray:
        sys.exit(f"{ROOT}: {', '.join(stray)} belong to no pinned module; delete them")


if __name__ == "__main__":
    main()
