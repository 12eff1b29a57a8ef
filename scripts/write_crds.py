"""Write the definitions of our kinds into the chart; run by `make generate`."""

from pathlib import Path

from instaslice.api import crd

CHART = Path(__file__).parent.parent / "charts" / "instaslice" / "crds"


def main() -> None:
    CHART.mkdir(parents=True, exist_ok=True)
    (CHART / "instaslices.yaml").write_text(crd.text())


if __name__ == "__main__":
    main()
