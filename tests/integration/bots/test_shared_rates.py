"""The program as it is put together: its calls wait for their turn, and through Redis with those of other processes."""

from bots.bootstrap.process_messaging import open_messaging
from bots.delivery.rate_limiter import RateLimit
from tests.support.settings import settings
from tests.support.waiting import until

EDIT = RateLimit(owner="slack:digest", name="chat.update", interval_seconds=100)


async def test_processes_on_one_redis_hear_what_one_of_them_was_refused(redis_url: str) -> None:
    both = settings(REDIS_URL=redis_url)
    async with open_messaging(both) as one, open_messaging(both) as other, open_messaging(settings()) as alone:
        await one.rates.record_refusal([EDIT], seconds=70)
        await until(lambda: other.rates.is_blocked(EDIT))
        assert await other.rates.reserve(EDIT, wait_seconds_max=0) > 10
        assert await alone.rates.reserve(EDIT, wait_seconds_max=0) == 0
