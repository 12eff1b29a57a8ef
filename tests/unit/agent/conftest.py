"""The fake of NVML is the drivers' tests' own, odd objects the controller's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "drivers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "controller"))
