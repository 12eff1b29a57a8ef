"""Write the tables of docs/metrics.md from the metrics that our processes have; run by `make generate`."""

from pathlib import Path

from instaslice.observe import reference

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"


def main() -> None:
    PAGE.write_text(reference.updated(PAGE.read_text()))


if __name__ == "__main__":
    main()
