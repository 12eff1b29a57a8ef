"""The fake of NVML is the drivers' tests' own, the clock that moves by hand the Kubernetes client's."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("drivers", "kube")]
