"""Sets of GPUs that know their lowest, of more GPUs than one block of a mask holds."""

from fleets import fleet, place, placer, spots
from hypothesis import given
from hypothesis import strategies as st

from instaslice.placement import Demand, GpuId
from instaslice.placement.pools import GpuSet

GPUS = 1100
"""In three blocks."""


@given(st.lists(st.one_of(st.integers(0, 2000), st.sampled_from([0, 511, 512, 513, 1023, 1024, 1535, 1536]))))
def test_a_bucket_is_a_set_that_knows_its_lowest(numbers):
    bucket, members = GpuSet(), set()
    for number in numbers:
        if number in members:
            bucket.remove(number)
            members.remove(number)
        else:
            bucket.add(number)
            members.add(number)
        assert bucket.count == len(members)
        if members:
            assert bucket.lowest() == min(members)
    assert list(bucket) == sorted(members)


def test_more_gpus_of_a_kind_than_a_block_holds_are_filled_in_order_and_none_is_forgotten():
    made = fleet(*(f"n{number:04}" for number in range(GPUS)))
    door = placer(made)
    plans = []
    for number in range(GPUS):
        plan = door.place(Demand(("7g.40gb",)))
        assert spots(plan) == [(f"n{number:04}", 0)]
        door.commit(plan)
        plans.append(plan)
    assert "the most that one has is 0" in str(place(made, "1g.5gb"))
    for number in [1099, 1024, 1023, 512, 511]:
        door.release(plans[number].grants)
        assert spots(place(made, "7g.40gb")) == [(f"n{number:04}", 0)]
    for number in [511, 512, 1023, 1024, 1099]:
        assert spots(place(made, "7g.40gb")) == [(f"n{number:04}", 0)]
        made.close(GpuId(f"n{number:04}"))
