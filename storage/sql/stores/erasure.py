"""Removes what is stored about a person or thread, and finds conversations older than the retention period."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import JsonValue
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, Text, case, cast, delete, or_, select, update

from core.domain.approval import CHOICES, CHOICES_OF_SEVERAL, answerer_name, denial_reason, is_denied
from core.domain.ids import new_id
from core.domain.json import JsonObject
from core.domain.threads import Ask
from core.stores import ErasedCounts
from storage.sql.rows import ask_from_row
from storage.sql.tables import (
    audit_entries,
    feedback,
    heard_messages,
    message_versions,
    messages,
    pairings,
    pending_asks,
    run_events,
    runs,
    schedules,
    takeover_claims,
    thread_inputs,
    threads,
    tool_calls,
    usage_days,
    usages,
)

BATCH_MESSAGES = 500
MCP_SESSION_AGE = timedelta(days=30)
REMOVED = "[This message was removed at the request of the person who wrote it.]"
FORGOTTEN = "forgotten"
DENIED_IT = " denied it"
DENIED = "Not run: a person denied it, whose words were removed at their request."
_CHOICES = (*CHOICES, *CHOICES_OF_SEVERAL)
"""Answers to approvals that are button labels and nobody's own words. A waiting run still has to read them."""

_NO_WORDS = {"author_id": "", "text": None}


def erase_thread(connection: Connection, thread_id: str) -> None:
    """Deletes the thread with all rows that refer to it or its messages, and ends the take-overs of its browser."""
    of_place = (
        message_versions.c[name] == select(threads.c[name]).where(threads.c.thread_id == thread_id).scalar_subquery()
        for name in ("platform", "workspace_id", "channel_id", "thread_key")
    )
    # the rows stay for their hour: a message that was deleted, or replaced, may still come
    connection.execute(update(message_versions).where(*of_place).values(_NO_WORDS))
    connection.execute(delete(threads).where(threads.c.thread_id == thread_id))
    claims = update(takeover_claims).where(takeover_claims.c.thread_id == thread_id)
    connection.execute(claims.values(ended_at=datetime.now(UTC)))


def erasure_conditions(platform: str, workspace_id: str) -> list[ColumnElement[bool]]:
    """Returns the conditions for the threads from which a person is removed. In Discord, a person is the same in all
    servers."""
    place = [threads.c.platform == platform]
    return place if platform == "discord" else [*place, threads.c.workspace_id == workspace_id]


def erase_rows(connection: Connection, platform: str, workspace_id: str, person_id: str) -> ErasedCounts:
    """Removes the person from every table except `message`."""
    here = erasure_conditions(platform, workspace_id)
    thread_ids = select(threads.c.thread_id).where(*here)

    def change(table: Table, column: str, **values: object) -> int:
        """Deletes the person's rows, or sets these values in them. Returns how many there are."""
        chosen = [table.c[column] == person_id]
        if "platform" not in table.c:
            chosen.append(table.c.thread_id.in_(thread_ids))
        else:
            chosen.append(table.c.platform == platform)
            chosen += [table.c.workspace_id == workspace_id] if platform != "discord" else []
        statement = update(table).values(values) if values else delete(table)
        return connection.execute(statement.where(*chosen)).rowcount

    # first, because every transaction that changes a thread locks its row first
    known = cast(threads.c.earlier_authors, Text).contains(json.dumps(person_id), autoescape=True)
    found = select(threads.c.thread_id, threads.c.earlier_authors).where(*here, known).with_for_update(key_share=True)
    for thread_id, authors in connection.execute(found).all():
        others = {key: name for key, name in authors.items() if key != person_id}
        connection.execute(update(threads).where(threads.c.thread_id == thread_id).values(earlier_authors=others))
    _erase_denials(connection, person_id, thread_ids)
    calls = update(tool_calls).where(
        tool_calls.c.run_id.in_(select(runs.c.run_id).where(runs.c.thread_id.in_(thread_ids))),
        _holds_chat(tool_calls),
        cast(tool_calls.c.result, Text).contains(person_id, autoescape=True),
    )
    connection.execute(calls.values(result={"success": True, "output": REMOVED, "error": None}))
    change(message_versions, "author_id", **_NO_WORDS)
    heard = change(thread_inputs, "author_id") + change(heard_messages, "author_id")
    names = change(runs, "requester_id", requester_id=None, requester_name=None)
    answer = case((pending_asks.c.answer.in_(_CHOICES), pending_asks.c.answer), else_=REMOVED)
    no_answerer = {"answered_by_id": None, "answered_by_name": None}
    names += change(pending_asks, "answered_by_id", answer=answer, **no_answerer)
    names += change(audit_entries, "actor_id", actor_id="", actor_name=FORGOTTEN)
    pairing = update(audit_entries).where(
        audit_entries.c.action.in_(("paired", "unpaired")),
        audit_entries.c.platform == platform,
        audit_entries.c.subject.endswith(f"({person_id})", autoescape=True),
    )
    if platform != "discord":
        pairing = pairing.where(audit_entries.c.workspace_id == workspace_id)
    names += connection.execute(pairing.values(subject=FORGOTTEN)).rowcount
    change(pairings, "person_id")
    change(schedules, "owner_id")
    change(feedback, "person_id")
    used = change(usages, "user_id", user_id=None)
    # a new id that belongs to nobody, because the sums of the channel and of the workspace stay
    change(usage_days, "user_id", user_id=new_id())
    return ErasedCounts(messages=heard, names=names, usage=used)


def _erase_denials(connection: Connection, person_id: str, thread_ids: Select[tuple[str]]) -> None:
    """Removes the person's name and words from the results of calls that the person denied."""
    of_person = select(pending_asks).where(
        pending_asks.c.answered_by_id == person_id, pending_asks.c.thread_id.in_(thread_ids)
    )
    for ask in map(ask_from_row, connection.execute(of_person).mappings().all()):
        if not is_denied(ask):
            continue
        shown = messages.c.type.in_(("tool", "status"))
        for key, fields, is_result in (
            (messages.c.message_id, messages.c.content, shown),
            (tool_calls.c.position, tool_calls.c.result, cast(tool_calls.c.result, Text).contains(DENIED_IT)),
        ):
            results = select(key, fields).where(key.table.c.run_id == ask.run_id, is_result)
            for place, content in connection.execute(results).all():
                new = {fields.name: _without_denial(content, ask)}
                connection.execute(update(key.table).where(key == place).values(new))
        events = select(run_events).where(run_events.c.run_id == ask.run_id, run_events.c.body.contains(DENIED_IT))
        for event in connection.execute(events).mappings().all():
            place = [run_events.c[key] == event[key] for key in ("run_id", "attempt", "n")]
            new = json.dumps(_without_denial(json.loads(event["body"]), ask))
            connection.execute(update(run_events).where(*place).values(body=new))


def _without_denial(fields: JsonObject, ask: Ask) -> JsonObject:
    """Replaces the denial in each text. A text that contains a truncated denial is removed completely."""
    reason, name = denial_reason(ask), answerer_name(ask)

    def new(text: JsonValue) -> JsonValue:
        if not isinstance(text, str):
            return text
        for known in (reason, json.dumps(reason, ensure_ascii=False)[1:-1]):  # also in a result, which is JSON
            text = text.replace(known, DENIED)
        return REMOVED if f"{name}{DENIED_IT}" in text else text

    return {key: new(value) for key, value in fields.items()}


def erase_messages(
    connection: Connection, platform: str, workspace_id: str, person_id: str, after: str
) -> tuple[int, str]:
    """Removes the person's words from one batch of messages after the id `after`. Returns how many were changed, and
    the last id of the batch, or "" after the last batch.

    Runs that may have read the words begin another attempt before their next turn, because their worker remembers them.
    """
    here = erasure_conditions(platform, workspace_id)
    found = (
        select(messages, _holds_chat(messages).label("holds_chat"))
        .join(threads, threads.c.thread_id == messages.c.thread_id)
        .where(*here, or_(messages.c.type == "user", _holds_chat(messages)), messages.c.message_id > after)
        .order_by(messages.c.message_id)
        .limit(BATCH_MESSAGES)
    )
    rows = connection.execute(found).all()
    changed, changed_threads = 0, set[str]()
    for row in rows:
        new = _without(row, person_id)
        if new is not None:
            changed += 1
            changed_threads.add(row.thread_id)
            statement = update(messages).where(messages.c.message_id == row.message_id)
            connection.execute(statement.values(content=new[0], metadata=new[1]))
    readers = update(runs).where(runs.c.thread_id.in_(changed_threads), runs.c.status == "running")
    connection.execute(readers.values(attempt=runs.c.attempt + 1))
    return changed, rows[-1].message_id if len(rows) == BATCH_MESSAGES else ""


def _holds_chat(table: Table) -> ColumnElement[bool]:
    """Returns the condition for the rows whose sources name the chat thread: they hold lines of `message_line`."""
    return cast(table.c.metadata, Text).contains('"chat"')


def _without(row: Row[Any], person_id: str) -> tuple[JsonObject, JsonObject] | None:
    """Returns the content and metadata of a message without the person's words, or None if there are none in it.

    The result of a tool is a single line of JSON, which may be truncated, so it is removed as a whole."""
    content, metadata = row.content, row.metadata
    if metadata.get("author_id") == person_id:
        return {**content, "content": REMOVED}, {}
    text = content.get("content")
    if not row.holds_chat or not isinstance(text, str):
        return None
    lines = text.split("\n")
    others = [line for line in lines if f'"id": "{person_id}"' not in line.replace("\\", "")]
    return None if others == lines else ({**content, "content": "\n".join(others) or REMOVED}, metadata)


def unbind_inactive(connection: Connection, before: datetime, limit: int) -> tuple[str, ...]:
    """Unbinds threads without activity since then and without an unended run, and returns them, the oldest first.
    Sessions of `threadhand mcp` delete themselves, so only those of a host that has long been away are among them."""
    active = select(runs.c.thread_id).where(runs.c.status.in_(("queued", "running", "waiting")))
    old = (
        select(threads.c.thread_id)
        .where(threads.c.last_activity_at < before, threads.c.thread_id.not_in(active))
        .where(
            (threads.c.platform != "api")
            | (threads.c.channel_id != "mcp")
            | (threads.c.last_activity_at < before - MCP_SESSION_AGE)
        )
        .order_by(threads.c.last_activity_at)
        .limit(limit)
        .with_for_update(key_share=True, skip_locked=True)  # a thread in use is not inactive
    )
    found = tuple(connection.execute(old).scalars())
    connection.execute(update(threads).where(threads.c.thread_id.in_(found)).values(unbound_at=datetime.now(UTC)))
    return found
