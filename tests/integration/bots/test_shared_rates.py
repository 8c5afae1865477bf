"""The program as it is put together: its calls wait for their turn, and through Redis with those of other processes."""

import aiohttp

from bots.bootstrap.process_messaging import open_messaging
from bots.delivery.rate_limiter import RateLimit
from simulator.slack import SlackSimulator
from tests.chaos.harness import staged
from tests.chaos.stories import TALK
from tests.support.settings import settings
from tests.support.waiting import until

EDIT = RateLimit(owner="slack:digest", name="chat.update", interval_seconds=100)
WAITS = 'threadhand_rate_wait_seconds_count{call="chat.postMessage",platform="slack"}'


async def test_processes_on_one_redis_hear_what_one_of_them_was_refused(redis_url: str) -> None:
    both = settings(REDIS_URL=redis_url)
    async with open_messaging(both) as one, open_messaging(both) as other, open_messaging(settings()) as alone:
        await one.rates.record_refusal([EDIT], seconds=70)
        await until(lambda: other.rates.is_blocked(EDIT))
        assert await other.rates.reserve(EDIT, wait_seconds_max=0) > 10
        assert await alone.rates.reserve(EDIT, wait_seconds_max=0) == 0


async def test_a_wait_for_a_turn_is_counted_in_the_figures() -> None:
    async with staged("slack", TALK) as stage:
        assert isinstance(stage.platform, SlackSimulator)
        stage.program.start()
        await stage.connected()
        stage.platform.misbehave("rate_limit", method="chat.postMessage", seconds=1)
        await stage.say("Hello")
        await stage.settled(1)
        url = f"http://127.0.0.1:{stage.http_port}/metrics"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            text = await response.text()
        told = [line for line in text.splitlines() if line.startswith(WAITS)]
        assert told, text
        assert float(told[0].rpartition(" ")[2]) >= 1
