"""The Kubernetes that the tests run on: `make test INSTASLICE_KUBERNETES=1.36.4` takes another that is pinned."""

import os

from instaslice.local import components

KUBERNETES = os.environ.get("INSTASLICE_KUBERNETES") or components.KUBERNETES
