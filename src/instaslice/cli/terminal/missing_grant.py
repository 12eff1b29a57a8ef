"""What an administrator runs so that a user may see what a command shows."""

import re

from instaslice.api import names
from instaslice.errors import InstasliceError
from instaslice.kube.errors import Forbidden

VIEWER = "instaslice-viewer"
VIEWED = ("pods", "nodes", "namespaces", f"instaslices.{names.GROUP}")
USER = re.compile(r'User "([^"]+)" cannot')
SHELL_SAFE = re.compile(r"[\w@%+=:,./-]+")


def in_cluster(error: Forbidden) -> InstasliceError:
    """For what is listed in the whole cluster."""
    user = _user(error)
    return InstasliceError(
        f"{error.message}. It needs `list` and `watch` on {', '.join(VIEWED)} in the whole cluster, which an "
        f"administrator grants with `kubectl create clusterrole {VIEWER} --verb=get,list,watch "
        f"--resource={','.join(VIEWED)}` and `kubectl create clusterrolebinding {_binding(user)} "
        f"--clusterrole={VIEWER} --user={_quoted(user)}`"
    )


def in_namespace(error: Forbidden, namespace: str) -> InstasliceError:
    """For the pods of one namespace."""
    user = _user(error)
    return InstasliceError(
        f"{error.message}. It needs `list` on pods in namespace {namespace}, which an administrator grants with "
        f"`kubectl create rolebinding {_binding(user)} --namespace={namespace} --clusterrole=view "
        f"--user={_quoted(user)}`"
    )


def _user(error: Forbidden) -> str:
    found = USER.search(error.message)
    return found[1] if found else "USER"


def _binding(user: str) -> str:
    """A name of its own for each user."""
    return _quoted(f"{VIEWER}:{re.sub(r'[/%]', '-', user)}")


def _quoted(text: str) -> str:
    return text if SHELL_SAFE.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"
