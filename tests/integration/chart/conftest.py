"""Files of these tests render the chart; some of them ask a real API server."""

import pytest
from helm import Helm


@pytest.fixture(scope="module")
def plain():
    """The chart with its own values."""
    return Helm().template()
