"""Write what the image has from PyPI, with versions and hashes of requirements-runtime.txt, as SPDX 2.3: `PATH`.

The base image is not in it: its distributor publishes its own. Licences are not asserted: the lock does not know them.
"""

import datetime
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import instaslice

LOCK = Path(__file__).parents[1] / "requirements-runtime.txt"
ENTRY = re.compile(r"^([\w.-]+)==(\S+)[^\n]*\n((?:\s+--hash=\S+[^\n]*\n)*)", re.MULTILINE)
OURS = "SPDXRef-instaslice"


class Package(NamedTuple):
    """One entry of the lock."""

    name: str
    version: str
    hashes: list[str]


def locked(lock: str) -> Iterator[Package]:
    for name, version, hashes in ENTRY.findall(lock):
        yield Package(name, version, re.findall(r"sha256:(\w+)", hashes))


def document(packages: list[Package], created: datetime.datetime) -> dict[str, object]:
    """The same packages and time give the same document."""
    identity = uuid.uuid5(uuid.NAMESPACE_OID, repr((instaslice.__version__, packages, created)))
    ours = _package(OURS, Package("instaslice", instaslice.__version__, [])) | {"licenseDeclared": "Apache-2.0"}
    theirs = [_package(_reference(each), each) for each in packages]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"instaslice-{instaslice.__version__}",
        "documentNamespace": f"urn:uuid:{identity}",
        "creationInfo": {
            "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: scripts/write_sbom.py"],
        },
        "packages": [ours, *theirs],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", OURS),
            *(_relation(OURS, "DEPENDS_ON", _reference(each)) for each in packages),
        ],
    }


def _package(reference: str, package: Package) -> dict[str, object]:
    return {
        "SPDXID": reference,
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:pypi/{package.name}@{package.version}",
            }
        ],
        # A lock has the hash of the file for each platform; an SPDX package has one of each algorithm.
        "comment": f"one of sha256: {' '.join(package.hashes)}" if package.hashes else "built from this tree",
    }


def _reference(package: Package) -> str:
    return f"SPDXRef-pypi-{package.name}"


def _relation(element: str, kind: str, related: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}


def main() -> None:
    target = Path(sys.argv[1])
    # The time of the commit, where the build is to be reproducible.
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    created = datetime.datetime.now(datetime.UTC)
    if epoch:
        created = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document(list(locked(LOCK.read_text())), created), indent=1) + "\n")
    print(target)


if __name__ == "__main__":
    main()
