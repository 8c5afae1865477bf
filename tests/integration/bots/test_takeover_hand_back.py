"""Handing back the agent's browser to a program that lets few people in: the link is the right to do it."""

import time
from functools import partial
from pathlib import Path

import aiohttp

from bots.bootstrap.program import run_program
from bots.inbound.actions import decide
from bots.settings import Settings, load_settings
from bots.web.links import sign_takeover_link
from core.domain.events import RunFinished
from core.domain.threads import Reply
from core.run.finish import build_run_result
from core.stores import JournalEntry
from storage.sql.database import open_database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.inbox import SqlInbox
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.run_journal import SqlRunJournal
from tests.integration.bots.receiver_stage import HERE, message

SECRET = "s" * 32


async def waiting_for_a_person(folder: Path) -> str:
    """The path of the link that a thread's agent has posted, with its question stored in the folder."""
    database = await open_database(f"sqlite:///{folder}/threadhand.db")
    try:
        said = message("log in for me")
        receipt = await SqlInbox(database).accept(said, partial(decide, said))
        lease = await SqlRunClaims(database).claim(receipt.run_id or "", "w1")
        assert lease is not None
        ends_at = time.time() + 600
        link = sign_takeover_link(SECRET.encode(), "http://here", lease.thread_id, expires_at=ends_at)
        reply = Reply(kind="takeover", text=f"Help me.\n\n[Open]({link})")
        ended = RunFinished(status="completed", finish_reason="agent_terminated", reply=reply)
        journal = SqlRunJournal(database)
        inputs = tuple(one.input_id for one in await journal.inputs(lease))
        assert await journal.finish(lease, JournalEntry(taken_input_ids=inputs), build_run_result(ended))
        return link.removeprefix("http://here")
    finally:
        await database.close()


def settings(folder: Path, *, allowed_roles: str) -> Settings:
    named = {
        "DATA_DIR": str(folder),
        "SANDBOX": "none",
        "MODEL": "any",
        "LLM_BASE_URL": "http://127.0.0.1:9",
        "HTTP_PORT": "0",
        "LINK_SECRET": SECRET,
        "ALLOWED_ROLES": allowed_roles,
    }
    return load_settings({f"THREADHAND_{name}": text for name, text in named.items()}, None)


async def test_what_is_said_there_reaches_the_agent(tmp_path: Path) -> None:
    """No platform says which roles the person at the link has, or whether somebody was paired."""
    path = await waiting_for_a_person(tmp_path)
    async with (
        run_program(settings(tmp_path, allowed_roles="S1"), with_worker=False) as program,
        aiohttp.ClientSession(f"http://127.0.0.1:{program.http_port}") as http,
    ):
        origin = {"Origin": f"http://127.0.0.1:{program.http_port}"}
        async with http.post(f"{path}/start", headers=origin) as answer:
            assert answer.status == 200
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        own = {**origin, "Cookie": cookie}
        async with http.post(f"{path}/finish", headers=own, json={"note": "Code 42"}) as answer:
            assert answer.status == 200
    database = await open_database(f"sqlite:///{tmp_path}/threadhand.db")
    try:
        snapshot = await SqlConversations(database).find(HERE)
    finally:
        await database.close()
    assert snapshot is not None
    assert snapshot.open_ask is None
    assert snapshot.active_run is not None
