import pytest
from fake_clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()
