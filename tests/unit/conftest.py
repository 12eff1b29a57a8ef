import logging

import pytest
from hypothesis import settings

# How long an example takes says something about the machine and what else runs on it, not about the code. Not in
# tests/conftest.py: the tests on a real GPU run without hypothesis.
settings.register_profile("instaslice", deadline=None)
settings.load_profile("instaslice")


@pytest.fixture(autouse=True)
def own_logging():
    """Commands that run in the process of a test set up its logging."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
