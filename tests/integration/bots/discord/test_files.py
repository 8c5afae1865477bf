"""Opening what people attached."""

import json
from dataclasses import replace

import pytest
from aiohttp import web

from bots.discord.rest.files import DiscordFiles, display_name_of_attachment
from core.domain.errors import RunError
from core.domain.threads import IncomingFile
from simulator.view import SentFile
from tests.support.closing import close_after
from tests.support.web import serve_http


async def attached(world, name: str = "a.csv", content: bytes = b"a,b\n") -> IncomingFile:
    await world.say("@threadhand read", files=[SentFile(name=name, content=content)])
    return (await world.received()).files[0]


async def read(files: DiscordFiles, file: IncomingFile, bytes_max: int = 1000) -> bytes:
    return b"".join([piece async for piece in files.open(file, bytes_max=bytes_max)])


def pointing_to(file: IncomingFile, **parts: str) -> IncomingFile:
    return replace(file, file_ref=json.dumps({**json.loads(file.file_ref), **parts}))


async def test_an_expired_link_is_looked_up_again(world) -> None:
    file = await attached(world)
    stale = pointing_to(file, url=json.loads(file.file_ref)["url"].split("?")[0] + "?ex=1&is=1&hm=0")
    assert await read(world.app.files, stale) == b"a,b\n"


@pytest.mark.parametrize(
    ("file_name", "title", "shown"),
    [
        ("unknown.csv", "客户名单", "客户名单.csv"),
        ("unknown.csv", "客户名单.csv", "客户名单.csv"),
        ("a.csv", "", "a.csv"),
        ("README", "Read me", "Read me"),
    ],
)
def test_a_file_has_the_name_that_people_see(file_name: str, title: str, shown: str) -> None:
    assert display_name_of_attachment(file_name, title) == shown


async def test_a_file_whose_message_is_gone_is_gone(world) -> None:
    file = await attached(world)
    stale = pointing_to(file, url=json.loads(file.file_ref)["url"].split("?")[0])
    await world.discord.delete("alice", world.general.channel_id, json.loads(file.file_ref)["message"])
    with pytest.raises(RunError, match=r"a\.csv is no longer available"):
        await read(world.app.files, stale)


async def test_a_file_over_the_limit_is_refused_by_what_it_says_and_by_what_it_is(world) -> None:
    file = await attached(world, content=b"x" * 2000)
    with pytest.raises(RunError, match="larger than"):
        await read(world.app.files, file)
    with pytest.raises(RunError, match="larger than"):
        await read(world.app.files, replace(file, size_bytes=5))


@pytest.mark.parametrize(
    "url",
    [
        "https://cdn.discordapp.com.example.org/a.csv",
        "https://cdn.discordapp.com:8443/a.csv",
        "file:///etc/passwd",
        "a.csv",
    ],
)
async def test_other_hosts_are_never_asked(world, url: str) -> None:
    file = pointing_to(await attached(world), url=url)
    with pytest.raises(RunError, match="not stored on Discord"):
        await read(world.app.files, file)


async def test_no_token_is_sent_and_no_redirect_followed(world) -> None:
    asked: list[web.Request] = []

    async def serve(request: web.Request) -> web.Response:
        asked.append(request)
        raise web.HTTPFound("/elsewhere")

    async with serve_http(serve) as url, close_after(DiscordFiles(world.app.client.rest, api_url=url)) as files:
        with pytest.raises(RunError):
            await read(files, pointing_to(await attached(world), url=f"{url}/a.csv"))
    (request,) = asked
    assert "Authorization" not in request.headers


async def test_a_file_of_a_forwarded_message_is_found_again_when_its_link_has_expired(world, monkeypatch) -> None:
    file = await attached(world)
    rest, call = world.app.files._rest, world.app.files._rest.call

    async def call_as_forward(*arguments, **more):
        answer = await call(*arguments, **more)
        return {"message_snapshots": [{"message": answer}]}

    monkeypatch.setattr(rest, "call", call_as_forward)
    stale = pointing_to(file, url=json.loads(file.file_ref)["url"].split("?")[0] + "?ex=1&is=1&hm=0")
    assert await read(world.app.files, stale) == b"a,b\n"


async def test_a_reference_that_cannot_be_read_is_one_sentence(world) -> None:
    for reference in ("", "{", "[]", "7"):
        with pytest.raises(RunError, match="no longer available"):
            await read(world.app.files, IncomingFile(file_ref=reference, name="a.csv"))
