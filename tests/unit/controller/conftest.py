import pytest
from world import World


@pytest.fixture
def world():
    """With one node of one A100."""
    made = World()
    made.add_node("a")
    return made
