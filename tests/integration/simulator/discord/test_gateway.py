"""The gateway, spoken to frame by frame."""

import pytest

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import TOKEN
from tests.integration.simulator.discord.socket import opened
from tests.support.waiting import until


async def test_a_missing_heartbeat_ends_the_session(simulator: DiscordSimulator) -> None:
    simulator.settings.heartbeat_seconds = 0.05
    async with opened(simulator) as socket:
        ready = await socket.identify()
        await socket.event("GUILD_CREATE")
        assert await socket.close_code() == 4009
    simulator.settings.heartbeat_seconds = 40
    async with opened(simulator) as socket:
        await socket.resume(str(ready["session_id"]), 2)
        assert (await socket.frame(9))["d"] is False


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("nonsense", 4002),
        ('{"op": 2, "d": {"token": "' + "x" * 5000 + '"}}', 4002),
        ('{"op": 77, "d": null}', 4001),
        ('{"op": 3, "d": {}}', 4003),
        ('{"op": 2, "d": {"token": "wrong", "intents": 1}}', 4004),
        (f'{{"op": 2, "d": {{"token": "{TOKEN}", "intents": {1 << 40}}}}}', 4013),
        (f'{{"op": 2, "d": {{"token": "{TOKEN}", "intents": 1, "shard": [2, 1]}}}}', 4010),
    ],
)
async def test_a_wrong_frame_is_answered_by_its_close_code(simulator: DiscordSimulator, frame: str, code: int) -> None:
    async with opened(simulator) as socket:
        await socket.socket.send_str(frame)
        assert await socket.close_code() == code


@pytest.mark.parametrize(
    ("ending", "session_seconds", "sequence", "refusal"),
    [("drop", 300.0, 999, 4007), ("drop", 0.0, 2, False), ("close", 300.0, 2, False)],
    ids=["a sequence from the future", "it has expired", "the client closed it itself"],
)
async def test_a_session_that_cannot_be_resumed(
    simulator: DiscordSimulator, ending: str, session_seconds: float, sequence: int, refusal: object
) -> None:
    simulator.settings.session_seconds = session_seconds
    async with opened(simulator) as socket:
        ready = await socket.identify()
        await socket.event("GUILD_CREATE")
        if ending == "close":
            await socket.socket.close(code=1000)
        else:
            simulator.misbehave("drop_connection")
    await until(lambda: not simulator.view().is_bot_connected)
    async with opened(simulator) as socket:
        await socket.resume(str(ready["session_id"]), sequence)
        if refusal:
            assert await socket.close_code() == refusal
        else:
            assert (await socket.frame(9))["d"] is False
            await socket.identify()
