"""Our processes in the root filesystem of the image, as a node runs them, without a container engine.

The root is read-only, the user nobody (the agents are root, as in the chart), and they find the API server as a pod
does: by two variables and the files of a service account. Mounts are their own; the network is the machine's.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from instaslice.local.cluster import Cluster

REPOSITORY = Path(__file__).parents[1]
ACCOUNT = "run/secrets/kubernetes.io/serviceaccount"
"""/var/run leads to /run."""
NOBODY, ROOT = "65532:65532", "0:0"
MODULE, KUBECONFIG = "instaslice.cli", "--kubeconfig="


def image(*words: str | Path) -> str:
    """What `scripts/image` prints; the image is built if something has changed."""
    argv = [sys.executable, REPOSITORY / "scripts" / "image", *words]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@dataclass(frozen=True)
class UnpackedImage:
    """The files of the image of this tree, and its variables."""

    root: Path
    variables: Mapping[str, str]

    @classmethod
    def unpack(cls, root: Path) -> "UnpackedImage":
        image("unpack", root)
        config = json.loads(image("config"))
        return cls(root, dict(each.split("=", 1) for each in config["Env"]))

    def replace(self, cluster: Cluster, name: str, *, user: str = NOBODY, folders: Sequence[Path] = ()) -> None:
        """End a component of the cluster, and start it again from the image with the same flags, in the same
        namespaces. The folders are those of the machine that it sees under the same path."""
        argv = cluster.processes.argv(name)
        assert argv is not None, f"{name} runs"
        place = argv.index(MODULE)
        entered = argv[: argv.index("--") + 1] if "--" in argv else []
        (kubeconfig,) = [word.removeprefix(KUBECONFIG) for word in argv if word.startswith(KUBECONFIG)]
        flags = [word for word in argv[place + 1 :] if not word.startswith(KUBECONFIG)]
        account = self.root.parent / f"account-{name}"
        variables = {**self.variables, **_write_account(Path(kubeconfig), account)}
        mounts = {account: self.root / ACCOUNT, **{folder: self.root / folder.relative_to("/") for folder in folders}}
        for target in mounts.values():
            target.mkdir(parents=True, exist_ok=True)
        script = "\n".join(
            [
                f"set -e; mount --bind {self.root} {self.root}",
                *(f"mount --rbind /{each} {self.root}/{each}" for each in ("proc", "dev")),
                *(f"mount --bind {source} {target}" for source, target in mounts.items()),
                f"mount -o remount,bind,ro {self.root}",
                f'exec chroot --userspec={user} {self.root} env -i "$@"',
            ]
        )
        isolated = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh"]
        given = [f"{key}={value}" for key, value in variables.items()]
        cluster.processes.kill(name)
        cluster.processes.start(name, [*entered, *isolated, *given, "instaslice", *flags])


def _write_account(kubeconfig: Path, folder: Path) -> dict[str, str]:
    """The files of a service account with the token and the authority of a kubeconfig; the variables of a pod."""
    found = yaml.safe_load(kubeconfig.read_text())
    cluster = found["clusters"][0]["cluster"]
    folder.mkdir()
    (folder / "token").write_text(found["users"][0]["user"]["token"])
    (folder / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    (folder / "namespace").write_text("instaslice-system")
    server = urlsplit(cluster["server"])
    return {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
