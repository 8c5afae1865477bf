"""Handing back the agent's browser to a program that lets few people in: the link is the right to do it."""

from functools import partial
from pathlib import Path
from typing import Literal

import aiohttp
import pytest
from sqlalchemy import select

from bots.bootstrap.program import run_program
from bots.inbound.actions import decide_action
from bots.web.links import SignedLinks
from core.domain.approval import Approval, CallToApprove
from core.domain.events import RunFinished
from core.domain.threads import Reply
from core.run.run_end import build_run_result
from core.stores import JournalEntry
from storage.sql.database import open_database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.inbox import SqlInbox
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.run_journal import SqlRunJournal
from storage.sql.stores.talk import read_participants
from storage.sql.tables import pending_asks, thread_inputs
from tests.integration.bots.receiver_stage import ALICE, HERE, message
from tests.support.closing import close_after
from tests.support.narrow import require
from tests.support.settings import settings

SECRET = "s" * 32
SETTINGS = {"SANDBOX": "none", "MODEL": "any", "LLM_BASE_URL": "http://127.0.0.1:9", "HTTP_PORT": "0"} | {
    "LINK_SECRET": SECRET,
    "ALLOWED_ROLES": "S1",
}
Open = Literal["takeover", "ask", "approval"]


async def waiting_for_a_person(folder: Path, asks: Open) -> str:
    """The path of the link that a thread's agent has posted. What is open is stored in the folder: the question with
    the link, another one, or an approval that names the link."""
    async with close_after(await open_database(f"sqlite:///{folder}/threadhand.db")) as database:
        said = message("log in for me")
        receipt = await SqlInbox(database).accept_action(said, partial(decide_action, said))
        lease = require(await SqlRunClaims(database).claim(receipt.run_id or "", "w1"))
        link = str(SignedLinks(SECRET.encode(), "http://here").takeover_url(lease.thread_id))
        journal = SqlRunJournal(database)
        entry = JournalEntry(taken_input_ids=tuple(one.input_id for one in await journal.read_inputs(lease)))
        if asks == "approval":
            call = CallToApprove(
                index=0, tool="execute_command", headline="Run a command", arguments={"command": f"curl {link}"}
            )
            await journal.suspend_run(lease, entry, Approval(turn_id="1", calls=(call,)))
        else:
            text = f"Help me.\n\n[Open]({link})" if asks == "takeover" else "In which town?"
            reply = Reply(kind=asks, text=text)
            ended = RunFinished(status="completed", finish_reason="agent_terminated", reply=reply)
            assert await journal.finish(lease, entry, build_run_result(ended))
        return link.removeprefix("http://here")


@pytest.mark.parametrize("asks", ["takeover", "ask", "approval"])
async def test_a_note_is_from_whoever_has_the_link_and_answers_only_its_own_question(
    tmp_path: Path, asks: Open
) -> None:
    """Nobody knows who opened the link: not the name, not the roles, not whether they were paired."""
    path = await waiting_for_a_person(tmp_path, asks)
    async with (
        run_program(settings(**SETTINGS, DATA_DIR=str(tmp_path)), with_worker=False) as program,
        aiohttp.ClientSession(f"http://127.0.0.1:{program.http_port}") as http,
    ):
        origin = {"Origin": f"http://127.0.0.1:{program.http_port}"}
        async with http.post(f"{path}/start", headers=origin) as answer:
            assert answer.status == 200
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        own = {**origin, "Cookie": cookie}
        async with http.post(f"{path}/finish", headers=own, json={"note": "Approve"}) as answer:
            assert answer.status == 200
    async with close_after(await open_database(f"sqlite:///{tmp_path}/threadhand.db")) as database:
        snapshot = require(await SqlConversations(database).find(HERE))
        newest = select(thread_inputs.c.author_name, thread_inputs.c.text).order_by(thread_inputs.c.position.desc())
        author, text = (await database.read(lambda c: c.execute(newest).all()))[0]
        answered = select(pending_asks.c.state, pending_asks.c.answered_by_name)
        ((state, answered_by),) = await database.read(lambda c: c.execute(answered).all())
        talk = await database.read(lambda c: read_participants(c, snapshot))
    assert (author, text.splitlines()[0]) == ("somebody with the link", "Approve")
    is_answered = asks == "takeover"
    assert (state, answered_by) == (("answered", author) if is_answered else ("open", None))
    assert require(snapshot.active_run).requester == ALICE  # whose budget it spends
    assert talk.participants == (ALICE,)
