"""Generate modules from the `.proto` files of the kubelet's APIs, beside them; run by `make generate`."""

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent / "src"


def main() -> int:
    # Named from the root of the sources: the names are known to all of a process, and others have a podresources.proto.
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "instaslice/agent/kubelet").glob("*.proto"))
    known = resources.files("grpc_tools") / "_proto"
    return protoc.main(["protoc", f"-I{ROOT}", f"-I{known}", f"--python_out={ROOT}", f"--pyi_out={ROOT}", *files])


if __name__ == "__main__":
    sys.exit(main())
