"""Files: the upload flow, downloads with and without the token, and the page's own addresses."""

from typing import Any

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSimulator
from simulator.view import SentFile
from tests.integration.simulator.slack.conftest import seen
from tests.integration.simulator.slack.test_web_api import code, general


async def fetch(url: str, token: str = "") -> tuple[int, str, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, response.content_type, await response.read()


async def test_a_file_is_uploaded_and_shared_in_a_thread(slack: SlackSimulator, client: AsyncWebClient) -> None:
    root = await slack.say("alice", "general", "a file, please")
    done = await client.files_upload_v2(
        channel=general(slack), thread_ts=root, content="a,b\n", filename="r.csv",
        initial_comment="here", title="Result",
    )  # fmt: skip
    assert done["files"][0]["title"] == "Result"
    reply = seen(slack).threads[0].messages[1]
    (file,) = reply.files
    assert (file.name, file.size_bytes, file.mime_type) == ("r.csv", 4, "text/csv")
    assert await fetch(file.url) == (200, "application/octet-stream", b"a,b\n")
    info = (await client.files_info(file=file.file_id))["file"]
    assert info["shares"]["public"][general(slack)] == [{"ts": reply.message_id}]


async def test_a_download_needs_the_token(slack: SlackSimulator, client: AsyncWebClient) -> None:
    name = "../übel\n.bin"
    sent = SentFile(name=name, content=b"\x00\x01")
    ts = await slack.say("alice", "general", "", files=[sent])
    replies = await client.conversations_history(channel=general(slack))
    (file,) = replies["messages"][0]["files"]
    assert replies["messages"][0]["ts"] == ts
    assert file["name"] == name
    for url in (file["url_private"], file["url_private_download"]):
        assert (await fetch(url, slack.settings.bot_token))[2] == b"\x00\x01"
        for token in ("", "xoxb-wrong"):
            status, kind, body = await fetch(url, token)
            assert (status, kind) == (200, "text/html")
            assert b"Sign in" in body


async def test_what_was_not_uploaded_cannot_be_shared(slack: SlackSimulator, client: AsyncWebClient) -> None:
    opened = await client.files_getUploadURLExternal(filename="a.txt", length=3)
    complete: Any = client.files_completeUploadExternal
    files = [{"id": opened["file_id"]}]
    assert await code(complete(files=files)) == "file_not_uploaded"
    assert await code(complete(files=[{"id": "F0"}])) == "file_not_found"
    async with aiohttp.ClientSession() as session:
        async with session.post(opened["upload_url"], data=b"four") as response:
            assert response.status == 400
        async with session.post(opened["upload_url"], data=b"abc") as response:
            assert response.status == 200
    assert await code(complete(files=files, channel_id="C0")) == "channel_not_found"
    await complete(files=files, channel_id=general(slack))
    empty = client.files_getUploadURLExternal(filename="a.txt", length=0)
    assert await code(empty) == "invalid_arguments"


async def test_a_deleted_file_is_gone(slack: SlackSimulator, client: AsyncWebClient) -> None:
    done = await client.files_upload_v2(channel=general(slack), content="a", filename="a.txt")
    file_id = done["files"][0]["id"]
    await client.files_delete(file=file_id)
    assert await code(client.files_info(file=file_id)) == "file_deleted"
