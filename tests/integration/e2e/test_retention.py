"""An old conversation is deleted with all that is its, a recent one stays, and the old thread begins afresh."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import cast

from bots.demo.thread_reader import text_of
from simulator.view import SentFile
from tests.chaos.harness import PERSON, PlatformName, Stage
from tests.integration.e2e.staging import run_staged
from tests.integration.e2e.test_approvals import MOSTLY_SLACK
from tests.integration.e2e.test_forget import stored

SCENARIO = """
conversations:
  - name: old
    when: {user: {contains: "Keep the aged"}}
    steps:
      - calls:
          - {name: create_file, arguments: {file_path: aged.txt, file_contents: "aged words"}}
      - calls: [{name: ask, arguments: {text: "Which colour?", options: ["red", "blue"]}}]
  - name: recent
    when: {user: {contains: "Keep the fresh"}}
    steps:
      - calls:
          - {name: create_file, arguments: {file_path: fresh.txt, file_contents: "fresh words"}}
      - text: "Kept, too."
  - name: again
    when: {user: {contains: "Where were we"}}
    steps: [{text: "At the beginning."}]
"""
HANDBOOK = SentFile(name="aged.md", content=b"The aged handbook.", mime_type="text/markdown")


async def begun(stage: Stage, words: str, runs: int) -> tuple[str, str]:
    """Begins a conversation. Returns its id and that of its chat thread."""
    stage.thread_id = ""
    await stage.say(words)
    await stage.settled(runs)
    ((thread_id,),) = stage.rows("SELECT thread_id FROM thread ORDER BY thread_id DESC LIMIT 1")
    return str(thread_id), stage.thread_id


async def add_document(stage: Stage, file: SentFile) -> None:
    if stage.name == "slack":
        await stage.say(f"@{stage.view().bot_name} knowledge add", files=(file,))
    else:
        await stage.platform.command(
            PERSON,
            stage.channel_id,
            "agent knowledge",
            {"action": "add"},
            thread_id=stage.thread_id,
            files={"file": file},
        )
    await stage.until(lambda: stage.rows("SELECT * FROM knowledge_entry WHERE is_ready"), "known")


def age(stage: Stage, thread_id: str) -> None:
    """Makes the conversation one without activity for 31 days, while the program does not run."""
    past = (datetime.now(UTC) - timedelta(days=31)).strftime("%Y-%m-%d %H:%M:%S.%f")
    with closing(sqlite3.connect(stage.program.folder / "data" / "threadhand.db")) as database:
        changed = database.execute("UPDATE thread SET last_activity_at = ? WHERE thread_id = ?", (past, thread_id))
        assert changed.rowcount == 1
        database.commit()


def texts(stage: Stage) -> list[str]:
    return [text_of(one) for one in stage.messages() if one.is_bot]


@MOSTLY_SLACK
async def test_an_old_conversation_is_deleted_whole_and_a_recent_one_stays(platform: PlatformName) -> None:
    async with run_staged(platform, SCENARIO, retention_days="30") as stage:
        old, old_place = await begun(stage, "Keep the aged words.", 1)
        await add_document(stage, HANDBOOK)
        recent, recent_place = await begun(stage, "Keep the fresh words.", 2)
        assert stage.workspace_file("aged.txt") == "aged words"
        stage.program.kill()
        age(stage, old)

        stage.program.start()
        await stage.connected()
        stage.thread_id = old_place
        await stage.until(lambda: stage.rows("SELECT thread_id FROM thread") == [(recent,)], "the old one goes")
        await stage.until(lambda: not stage.workspace_file("aged.txt"), "its files go")
        left = {table for table, row in stored(stage) if old in row or "aged" in row.lower()}
        assert left == {"audit_entry"}  # who did what, which has an age of its own
        assert stage.workspace_file("fresh.txt") == "fresh words"

        # the question is closed, because no one could answer it any more
        await stage.until(lambda: stage.button("red") is None, "it asks no more")
        assert "This question is no longer open." in "".join(texts(stage))
        assert "replying in this thread" not in "".join(texts(stage))
        before = len(texts(stage))
        await stage.say(f"@{stage.view().bot_name} Where were we?")
        await stage.settled(2)
        assert "At the beginning." in "".join(texts(stage)[before:])
        roles = [one["role"] for one in cast(list[dict[str, str]], stage.last_request()["messages"])]
        assert "assistant" not in roles  # it knows no more than anyone who reads the thread
        stage.thread_id = recent_place
        await stage.say("Where were we with the fresh words?")
        await stage.until(lambda: "Kept, too." in str(stage.last_request()["messages"]), "it knows the fresh one")
