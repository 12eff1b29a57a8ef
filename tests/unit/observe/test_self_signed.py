"""A certificate that a process makes for itself. Those from files are tested with the webhook's, which renews them."""

from fake_clock import FakeClock
from handshakes import served

from instaslice.observe.certificates import SelfSigned


async def test_a_certificate_of_its_own_serves_and_does_not_expire_meanwhile():
    clock = FakeClock()
    source = SelfSigned(clock)
    found = await served(source.context)
    assert found.issuer == found.subject
    assert (found.not_valid_after_utc - clock.now()).days >= 3649
    assert found.not_valid_before_utc < clock.now()
    await source.refresh()
    assert await served(source.context) == found


async def test_two_processes_have_two():
    assert await served(SelfSigned(FakeClock()).context) != await served(SelfSigned(FakeClock()).context)
