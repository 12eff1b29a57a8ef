"""Quantities as Kubernetes reads and rounds them."""

import pytest

from instaslice.errors import InstasliceError
from instaslice.kube.errors import BadQuantity
from instaslice.kube.quantities import MAX, NANO, counted, humanized, nano, whole


@pytest.mark.parametrize(
    "text, thousandths",
    [
        pytest.param("0", 0, id="nothing"),
        pytest.param("2", 2000, id="plain"),
        pytest.param(3, 3000, id="a number where the JSON has one"),
        pytest.param("500m", 500, id="thousandths"),
        pytest.param("0.1", 100, id="a decimal that no float holds"),
        pytest.param(".5", 500, id="nothing before the point"),
        pytest.param("1.", 1000, id="nothing after the point"),
        pytest.param("+1", 1000, id="signed"),
        pytest.param("-1.5", -1500, id="negative"),
        pytest.param("0.0001", 1, id="less than a thousandth counts as one"),
        pytest.param("100u", 1, id="millionths round up"),
        pytest.param("1500001n", 2, id="billionths round up"),
        pytest.param("1e-3", 1, id="exponent below zero"),
        pytest.param("12E2", 1_200_000, id="exponent in capitals"),
        pytest.param("1e-400", 1, id="smaller than anything is not nothing"),
    ],
)
def test_cpu_is_counted_in_thousandths(text, thousandths):
    assert counted("cpu", nano(text)) == thousandths


@pytest.mark.parametrize(
    "text, units",
    [
        pytest.param("1k", 1000, id="k"),
        pytest.param("1M", 10**6, id="M"),
        pytest.param("1G", 10**9, id="G"),
        pytest.param("1T", 10**12, id="T"),
        pytest.param("1P", 10**15, id="P"),
        pytest.param("1E", 10**18, id="E alone is a suffix"),
        pytest.param("1E1", 10, id="E and digits is an exponent"),
        pytest.param("1e3", 1000, id="exponent"),
        pytest.param("1Ki", 2**10, id="Ki"),
        pytest.param("1Mi", 2**20, id="Mi"),
        pytest.param("1Gi", 2**30, id="Gi"),
        pytest.param("1Ti", 2**40, id="Ti"),
        pytest.param("1Pi", 2**50, id="Pi"),
        pytest.param("1Ei", 2**60, id="Ei"),
        pytest.param("1.5Gi", 3 * 2**29, id="a decimal of a binary suffix"),
        pytest.param("0.1Ki", 103, id="102.4 bytes are 103"),
        pytest.param("128974848000m", 128974848, id="memory in thousandths, as some clients write it"),
        pytest.param("100m", 1, id="a tenth of a byte is a byte"),
        pytest.param("-100m", -1, id="away from zero"),
        pytest.param("16Ei", MAX, id="more than 64 bits is capped"),
        pytest.param("1e999999999", MAX, id="and costs no memory"),
        pytest.param("0e999999999", 0, id="nothing stays nothing"),
    ],
)
def test_everything_else_is_counted_in_whole_units(text, units):
    assert whole(text) == units


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "m", ".", "+", "1K", "1ki", "1mi", "1GiB", "1e", "1e1.5", "1_000", "٣"]
)
def test_what_is_no_quantity(text):
    with pytest.raises(BadQuantity, match="is not a quantity") as caught:
        nano(text)
    assert isinstance(caught.value, InstasliceError) and isinstance(caught.value, ValueError)


def test_a_sum_is_rounded_once():
    """Three containers of a third of a milli-core are one milli-core, not three."""
    assert counted("cpu", 3 * nano("333u")) == 1
    assert counted("memory", nano("1Gi") + 1) == 2**30 + 1
    assert nano("1") == NANO


@pytest.mark.parametrize(
    "name, amount, up, said",
    [
        ("cpu", 500, True, "500m"),
        ("cpu", 64000, True, "64"),
        ("memory", 2**30, True, "1Gi"),
        ("memory", 2**30 + 1, True, "1.1Gi"),
        ("memory", 2**30 + 1, False, "1Gi"),
        ("memory", 1000, True, "1000"),
        ("hugepages-2Mi", 4 * 2**20, False, "4Mi"),
        ("pods", 110, False, "110"),
        ("example.com/fpga", 2048, False, "2048"),
    ],
)
def test_amounts_in_words(name, amount, up, said):
    assert humanized(name, amount, up=up) == said
