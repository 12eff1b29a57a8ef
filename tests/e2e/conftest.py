"""State homes for what is started as a user does; the programs come from the user's cache."""

import shutil
from pathlib import Path

import leftovers
import pytest


@pytest.fixture(scope="module")
def new_home():
    """Makes state homes. A demo that is cut short with its test leaves nothing there either."""
    made = []

    def make(name: str) -> Path:
        made.append(leftovers.HOME / leftovers.own(name))
        made[-1].mkdir(parents=True)
        return made[-1]

    yield make
    for home in made:
        for record in home.glob("instaslice/clusters/*/cluster.json"):
            leftovers.down(record)
        shutil.rmtree(home)
