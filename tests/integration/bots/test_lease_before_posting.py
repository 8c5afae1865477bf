"""A process that loses a run between the decision to post and the request posts nothing."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bots.delivery.content import AnswerPart
from bots.delivery.poster import Poster
from bots.delivery.rate_limiter import MemoryRateBudget, RateLimit, RateLimiter
from core.domain.errors import LeaseLost
from core.domain.threads import Address
from core.ports import OutgoingFile
from core.stores import DeliveryDraft
from core.tasks import boot_seconds
from simulator.discord import DiscordSettings, DiscordSimulator
from simulator.slack import SlackSimulator
from storage.sql.stores.deliveries import SqlDeliveries
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.bots.discord.conftest import Program, bot
from tests.integration.bots.slack.socket_mode_app import channel_of, started, thread_in
from tests.integration.core.conftest import World
from tests.support.closing import close_after

LoseRun = Callable[[], Awaitable[None]]


class BusyBudget(MemoryRateBudget):
    """Lets `lose_run` happen while the next call waits for its turn."""

    lose_run: LoseRun | None = None

    async def reserve(self, limit: RateLimit, *, wait_seconds_max: float) -> float:
        seconds = await super().reserve(limit, wait_seconds_max=wait_seconds_max)
        if self.lose_run is not None:
            lose_run, self.lose_run = self.lose_run, None
            await lose_run()
        return seconds


@asynccontextmanager
async def slack(budget: BusyBudget) -> AsyncIterator[tuple[object, Address, Callable[[], int]]]:
    async with SlackSimulator() as simulator:
        ts = await simulator.say("alice", channel_of(simulator), "a thread")
        async with started(simulator, limiter=RateLimiter(budget)) as app:
            before = len(simulator.calls)
            yield app.surface, thread_in(simulator, ts), lambda: len(simulator.calls) - before


@asynccontextmanager
async def discord(budget: BusyBudget) -> AsyncIterator[tuple[object, Address, Callable[[], int]]]:
    async with DiscordSimulator(settings=DiscordSettings(rate_limit_scale=0)) as simulator:
        app = bot(simulator, Program())
        app.client.rest.call_limiter.limiter = RateLimiter(budget)
        await app.sign_in()
        channel = next(one for one in simulator.view().channels if not one.is_direct)
        message_id = await simulator.say("alice", channel.channel_id, "a thread")
        address = Address(
            platform="discord",
            workspace_id=simulator.world.home.guild_id,
            channel_id=channel.channel_id,
            thread_key=message_id,
        )
        before = len(simulator.calls)
        async with close_after(app):
            yield app.surface, address, lambda: sum(call.method != "GET" for call in simulator.calls[before:])


PLATFORMS = {"slack": slack, "discord": discord}


async def planned(world: World, address: Address) -> tuple[SqlDeliveries, object, object, LoseRun]:
    world.address = address
    run_id = await world.say("go")
    deliveries = SqlDeliveries(world.database)
    rendering = await deliveries.claim(run_id, "worker-1")
    assert rendering is not None
    (delivery,) = await deliveries.plan_deliveries(rendering, [DeliveryDraft(slot="answer", body={})])

    async def lose_run() -> None:
        await world.deps.stores.claims.remove_worker("worker-1")
        assert await deliveries.claim(run_id, "worker-2") is not None

    return deliveries, rendering, delivery, lose_run


def hello() -> OutgoingFile:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"hello"

    return OutgoingFile(name="hello.txt", size_bytes=5, pieces=pieces())


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("action", ["post", "upload", "react"])
async def test_a_run_lost_while_the_call_waits_for_its_turn_sends_nothing(
    world: World, platform: str, action: str
) -> None:
    budget = BusyBudget()
    async with PLATFORMS[platform](budget) as (surface, address, request_count):
        deliveries, rendering, delivery, lose_run = await planned(world, address)
        poster = Poster(address, surface, rendering, deliveries, sure_seconds=0)
        budget.lose_run = lose_run
        match action:
            case "post":
                with pytest.raises(LeaseLost):
                    await poster.post_or_edit(delivery, AnswerPart(markdown="Hi."))
            case "upload":
                with pytest.raises(LeaseLost):
                    await poster.send_file(delivery, hello)
            case _:
                await poster.set_reaction(address.thread_key, "seen", is_patient=True)
        assert budget.lose_run is None
        assert request_count() == 0


async def test_a_run_lost_while_the_machine_was_suspended_is_not_posted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`time.monotonic` does not count that time on Linux."""
    async with PLATFORMS["slack"](BusyBudget()) as (surface, address, request_count):
        deliveries, rendering, delivery, lose_run = await planned(world, address)
        poster = Poster(address, surface, rendering, deliveries, held_since=boot_seconds())
        await lose_run()
        awake = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + 3600)
        await poster.set_reaction(address.thread_key, "seen", is_patient=True)
        with pytest.raises(LeaseLost):
            await poster.post_or_edit(delivery, AnswerPart(markdown="Hi."))
        assert request_count() == 0
