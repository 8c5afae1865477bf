"""The gateway, spoken to frame by frame."""

import aiohttp
import pytest

from simulator.discord import DiscordSettings, DiscordSimulator
from tests.integration.simulator.discord.bot import TOKEN
from tests.integration.simulator.discord.socket import ALL, GUILDS, MESSAGES, opened
from tests.support.waiting import until


def general(simulator: DiscordSimulator) -> str:
    return simulator.view().channels[0].channel_id


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
        ("[]", 4002),
        ('{"op": 2, "d": {"token": "' + "x" * 5000 + '"}}', 4002),
        ('{"op": 77, "d": null}', 4001),
        ('{"op": [1], "d": null}', 4001),
        ('{"op": 3, "d": {}}', 4003),
        ('{"op": 2, "d": {"token": "wrong", "intents": 1}}', 4004),
        ('{"op": 2, "d": null}', 4004),
        ('{"op": 6, "d": {"token": "wrong", "session_id": "x", "seq": 1}}', 4004),
        (f'{{"op": 2, "d": {{"token": "{TOKEN}"}}}}', 4013),
        (f'{{"op": 2, "d": {{"token": "{TOKEN}", "intents": {1 << 40}}}}}', 4013),
        (f'{{"op": 2, "d": {{"token": "{TOKEN}", "intents": 1, "shard": [2, 1]}}}}', 4010),
        (f'{{"op": 2, "d": {{"token": "{TOKEN}", "intents": 1, "shard": "x"}}}}', 4010),
    ],
)
async def test_a_wrong_frame_is_answered_by_its_close_code(simulator: DiscordSimulator, frame: str, code: int) -> None:
    async with opened(simulator) as socket:
        await socket.socket.send_str(frame)
        assert await socket.close_code() == code


async def test_an_unknown_version_of_the_api_is_refused(simulator: DiscordSimulator) -> None:
    with pytest.raises(TypeError):
        async with opened(simulator, "?v=3"):
            pass


async def test_an_identify_is_refused_the_second_time_and_with_an_intent_that_is_off(
    simulator: DiscordSimulator,
) -> None:
    async with opened(simulator) as socket:
        await socket.identify(GUILDS)
        await socket.event("GUILD_CREATE")
        await socket.send(2, {"token": TOKEN, "intents": GUILDS})
        assert await socket.close_code() == 4005
    simulator.settings.has_message_content_intent = False
    async with opened(simulator) as socket:
        await socket.send(2, {"token": TOKEN, "intents": ALL})
        assert await socket.close_code() == 4014


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


async def test_members_can_be_asked_for(simulator: DiscordSimulator) -> None:
    async with opened(simulator) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        await socket.send(8, {"guild_id": "3001", "query": "al", "limit": 5, "nonce": "n1"})
        chunk = await socket.event("GUILD_MEMBERS_CHUNK")
        assert [member["user"]["username"] for member in chunk["members"]] == ["alice"]
        assert chunk["nonce"] == "n1"
        await socket.send(8, {"guild_id": "3001", "user_ids": ["2002", "77"], "limit": 0})
        chunk = await socket.event("GUILD_MEMBERS_CHUNK")
        assert [member["user"]["username"] for member in chunk["members"]] == ["bob"]
        assert chunk["not_found"] == ["77"]


@pytest.mark.parametrize("is_resumable", [True, False])
async def test_a_session_can_be_invalidated(simulator: DiscordSimulator, is_resumable: bool) -> None:
    async with opened(simulator) as socket:
        ready = await socket.identify(GUILDS | MESSAGES)
        await socket.event("GUILD_CREATE")
        simulator.gateway.invalidate(is_resumable=is_resumable)
        assert (await socket.frame(9))["d"] is is_resumable
        await socket.socket.close(code=4000)
    async with opened(simulator) as socket:
        await socket.resume(str(ready["session_id"]), 2)
        if is_resumable:
            await socket.event("RESUMED")
        else:
            assert (await socket.frame(9))["d"] is False


async def test_an_event_can_come_twice_late_and_out_of_order(simulator: DiscordSimulator) -> None:
    async with opened(simulator) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        simulator.misbehave("duplicate")
        await simulator.say("alice", general(simulator), "twice")
        assert [(await socket.event("MESSAGE_CREATE"))["content"] for _ in "ab"] == ["twice"] * 2
        simulator.misbehave("reorder")
        await simulator.say("alice", general(simulator), "first")
        await simulator.say("alice", general(simulator), "second")
        heard = [(await socket.event("MESSAGE_CREATE"))["content"] for _ in "ab"]
        assert heard == ["second", "first"]
        simulator.misbehave("reorder", seconds=0.02)
        await simulator.say("alice", general(simulator), "alone")
        assert (await socket.event("MESSAGE_CREATE"))["content"] == "alone"
        simulator.misbehave("delay", seconds=0.05)
        await simulator.say("alice", general(simulator), "late")
        await simulator.say("alice", general(simulator), "early")
        heard = [(await socket.event("MESSAGE_CREATE"))["content"] for _ in "ab"]
        assert heard == ["early", "late"]
        assert socket.sequence == 9


async def test_a_plain_request_to_the_gateway_is_told_what_it_is(simulator: DiscordSimulator) -> None:
    url = simulator.gateway_url.replace("ws:", "http:")
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 400


async def test_the_simulator_ends_with_clients_still_connected() -> None:
    async with DiscordSimulator(token=TOKEN, settings=DiscordSettings()) as simulator:
        opening = opened(simulator)
        socket = await opening.__aenter__()
        await socket.identify()
    assert simulator.view().is_bot_connected is False
    await opening.__aexit__(None, None, None)


async def test_clearing_the_faults_lets_a_held_event_go(simulator: DiscordSimulator) -> None:
    async with opened(simulator) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        simulator.misbehave("reorder", seconds=60)
        await simulator.say("alice", general(simulator), "held")
        simulator.misbehave("none")
        assert (await socket.event("MESSAGE_CREATE"))["content"] == "held"
