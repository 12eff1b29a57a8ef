"""The fake of NVML is the tests of drivers' own, odd objects those of the controller's, the clock those of kube's."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("drivers", "kube", "controller")]
