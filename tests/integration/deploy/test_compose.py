"""deploy/compose.yaml, as it stands: its services come up in their order, answer a mention, and end in time."""

from graphlib import TopologicalSorter

import asyncpg

from bots.demo.thread_reader import messages_of, text_of
from tests.chaos.harness import PERSON
from tests.integration.deploy.composition import COMPOSE, START_SECONDS, Composition, Service, composed

SCENARIO = r"""
conversations:
  - name: talk
    when: {user: {contains: "Hello"}}
    capture: {token: 'token (\w+)'}
    steps:
      - text: "Done {{token}}."
"""


async def test_the_services_come_up_answer_and_end_and_so_does_a_second_bot() -> None:
    async with composed(SCENARIO) as there:
        bot, worker = await up(there)
        await is_answered(there, "a1")
        second = there.start("bot")
        await second.becomes_healthy()
        await is_answered(there, "a2")
        await ends(bot)
        await second.becomes_healthy()
        await is_answered(there, "a3")
        await ends(worker)
        await ends(second)
        assert there.stage.script.problems == []


async def up(there: Composition) -> list[Service]:
    """Starts each service after those that it waits for; answers ours that stay."""
    services = COMPOSE["services"]
    after = {name: one.get("depends_on", {}) for name, one in services.items()}
    running: list[Service] = []
    for name in TopologicalSorter(after).static_order():
        if name in ("postgres", "redis"):
            assert await there.is_server_healthy(name)
        elif name == "migrate":
            assert not await has_tables(there)
            service = there.start(name)
            assert await service.program.ended(START_SECONDS) == 0, service.program.log()
            assert await has_tables(there)
        else:
            assert set(after[name]) == {"migrate", "postgres", "redis"}
            running.append(service := there.start(name))
            await service.becomes_healthy()
    assert [one.name for one in running] == ["bot", "worker"]
    return running


async def has_tables(there: Composition) -> bool:
    url = there.environment("migrate")["THREADHAND_DATABASE_URL"]
    connection = await asyncpg.connect(url)
    found = await connection.fetchval("SELECT to_regclass('run') IS NOT NULL")
    await connection.close()
    return bool(found)


async def is_answered(there: Composition, token: str) -> None:
    stage = there.stage
    thread_id = await stage.platform.say(PERSON, stage.channel_id, f"@{stage.view().bot_name} Hello, token {token}")

    def said() -> list[str]:
        ours = [one for one in messages_of(stage.view(), thread_id) if one.is_bot]
        return [text_of(one) for one in ours]

    await stage.until(lambda: any(f"Done {token}." in one for one in said()), "it is answered", seconds=90)
    assert sum(f"Done {token}." in one for one in said()) == 1, said()


async def ends(service: Service) -> None:
    """Green before and red after, within the time that the engine would grant."""
    await service.becomes_healthy()
    assert await service.stop() == 0, service.program.log()
    assert not await service.is_healthy()
