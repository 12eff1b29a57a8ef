"""The wait that other tests rely on."""

import pytest
from waiting import until


def turns(*found):
    """A check that finds these, one after the other."""
    return iter(found).__next__


async def test_it_returns_what_the_check_found_and_asks_no_further():
    check = turns(None, "", [3], [4])
    assert await until(check) == [3]
    assert check() == [4]


async def test_a_check_may_ask_others():
    check = turns(0, 7)

    async def asked():
        return check()

    assert await until(lambda: asked()) == 7


async def test_what_was_waited_for_is_told_with_what_was_seen_last():
    seen = []
    with pytest.raises(TimeoutError, match=r"^not within 0.1 s: the end, not \[1[,\]]"):
        await until(lambda: seen.append(len(seen) + 1), 0.1, lambda: f"the end, not {seen}")


async def test_a_timeout_of_the_check_is_its_own():
    async def asked():
        raise TimeoutError("the server's")

    with pytest.raises(TimeoutError, match=r"^the server's$"):
        await until(asked)
