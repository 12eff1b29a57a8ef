"""What each process loads: a library costs memory on every node, whether it is used or not."""

import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "cryptography", "grpc", "kubernetes_asyncio", "numpy", "psutil", "pynvml", "rich"}


@pytest.mark.parametrize(
    "process, needed",
    [
        pytest.param("webhook", {"aiohttp", "cryptography"}, id="the webhook signs certificates"),
        pytest.param("controller", {"aiohttp"}, id="the controller speaks to the API server alone"),
        pytest.param("agent", {"aiohttp", "grpc", "pynvml"}, id="the agent speaks to kubelet and NVML too"),
    ],
)
def test_a_process_loads_only_what_it_needs(process, needed):
    program = f"import instaslice.cli.{process}, sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert HEAVY & set(loaded.split()) == needed
