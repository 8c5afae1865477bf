"""Conversions between table rows and the types of core, one function for each direction."""

from dataclasses import asdict, fields
from datetime import datetime
from functools import cache, partial
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from core.domain.actions import StoredAction
from core.domain.events import AGENT_EVENT, Cursor, MessageAdded, RunEvent
from core.domain.messages import Message
from core.domain.schedules import NEVER, Schedule, Timing, Trigger, When
from core.domain.threads import (
    Address,
    Ask,
    IncomingFile,
    ListedThread,
    Person,
    Run,
    Thread,
    ThreadInput,
    ToolCallRecord,
)
from core.stores import Delivery, UsageEntry
from storage.sql.columns import dump_json

T = TypeVar("T")
RowValues = dict[str, object]


class Row(Protocol):
    """Values by column name."""

    def __getitem__(self, name: str, /) -> Any: ...


_FILES = TypeAdapter(tuple[IncomingFile, ...])


def from_row(kind: type[T], row: Row, **others: object) -> T:
    """Builds a dataclass from the columns that are named like its fields. `others` are the remaining fields."""
    values = {name: row[name] for name in _field_names(kind) if name not in others}
    return kind(**values, **others)


def to_row(value: object, *others: str) -> RowValues:
    """Returns the fields of a dataclass as columns, except `others`, which have no column of their own."""
    return {name: getattr(value, name) for name in _field_names(type(value)) if name not in others}


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _person(person_id: str | None, name: str | None, time_zone: str | None = None) -> Person | None:
    return None if person_id is None else Person(person_id=person_id, name=name or "", time_zone=time_zone or "")


def address_parameters(address: Address) -> RowValues:
    """Returns the parameters `platform`, `workspace`, `channel` and `key`."""
    return {
        "platform": address.platform,
        "workspace": address.workspace_id,
        "channel": address.channel_id,
        "key": address.thread_key,
    }


def thread_from_row(row: Row) -> Thread:
    return from_row(Thread, row, address=from_row(Address, row))


def listed_thread_from_row(row: Row) -> ListedThread:
    return ListedThread(thread=thread_from_row(row), run_id=row["run_id"], run_status=row["status"])


def thread_to_row(thread: Thread) -> RowValues:
    return {**to_row(thread, "address"), **to_row(thread.address), "next_sequence": 1}


def run_from_row(row: Row) -> Run:
    return from_row(Run, row, requester=_person(row["requester_id"], row["requester_name"], row["requester_time_zone"]))


def run_to_row(run: Run) -> RowValues:
    return {
        **to_row(run, "requester"),
        "requester_id": run.requester.person_id if run.requester else None,
        "requester_name": run.requester.name if run.requester else None,
        "requester_time_zone": run.requester.time_zone or None if run.requester else None,
    }


def input_from_row(row: Row) -> ThreadInput:
    author = Person(person_id=row["author_id"], name=row["author_name"], time_zone=row["author_time_zone"] or "")
    return from_row(ThreadInput, row, author=author, files=_FILES.validate_python(row["files"]))


def input_to_row(action: StoredAction) -> RowValues:
    """Returns the values of an input's columns that the action determines."""
    zone = action.person.time_zone or None
    return {
        **message_to_columns(action),
        "kind": action.kind,
        "dedupe_key": action.dedupe_key,
        "author_time_zone": zone,
    }


def message_to_columns(action: StoredAction) -> RowValues:
    """Returns the values of the columns for what was written, by whom and when."""
    return {
        "message_ref": action.message_ref,
        "author_id": action.person.person_id,
        "author_name": action.person.name,
        "text": action.text,
        "files": [asdict(file) for file in action.files],
        "sent_at": action.acted_at,
    }


message_from_row = partial(from_row, Message)
tool_call_from_row = partial(from_row, ToolCallRecord)
delivery_from_row = partial(from_row, Delivery)


def message_to_row(message: Message, sequence: int) -> RowValues:
    return {**to_row(message), "sequence": sequence}


def event_from_row(row: Row, message: Message | None) -> RunEvent:
    """Pass the stored message for a row without a body, which stands for `MessageAdded`. Raises ValueError if there is
    neither a body nor a message."""
    if row["body"] is not None:
        event = AGENT_EVENT.validate_json(row["body"])
    elif message is not None:
        event = MessageAdded(message=message)
    else:
        raise ValueError(f"event {row['attempt']}-{row['n']} of {row['run_id']} lost its message")
    return from_row(RunEvent, row, cursor=Cursor(row["attempt"], row["n"]), event=event)


def event_to_row(event: RunEvent) -> RowValues:
    if isinstance(event.event, MessageAdded):
        body, message_id = None, event.event.message.message_id
    else:
        body, message_id = dump_json(event.event), event.message_id
    return {**to_row(event, "cursor", "event"), **to_row(event.cursor), "body": body, "message_id": message_id}


def ask_from_row(row: Row) -> Ask:
    return from_row(
        Ask,
        row,
        options=tuple(row["options"]),
        answered_by=_person(row["answered_by_id"], row["answered_by_name"]),
        message_ref="",
        requester=None,
        is_written_in_thread=False,
    )


_SECOND_TIME = "*"


def timing_to_row(timing: When) -> RowValues:
    if isinstance(timing, Trigger):
        return {"rule": timing.rule, "next_local": "", "time_zone": "", "due_at": NEVER}
    next_local = timing.next_local.isoformat() + _SECOND_TIME * timing.next_local.fold
    return {**asdict(timing), "next_local": next_local, "due_at": timing.due_at}


def schedule_to_row(schedule: Schedule) -> RowValues:
    return {
        **to_row(schedule, "address", "owner", "timing"),
        **to_row(schedule.address),
        **timing_to_row(schedule.timing),
        "owner_id": schedule.owner.person_id,
        "owner_name": schedule.owner.name,
    }


def schedule_from_row(row: Row) -> Schedule:
    timing = Trigger.of_rule(row["rule"])
    if timing is None:
        next_local = datetime.fromisoformat(row["next_local"].rstrip(_SECOND_TIME))
        next_local = next_local.replace(fold=row["next_local"].endswith(_SECOND_TIME))
        timing = from_row(Timing, row, next_local=next_local)
    owner = Person(person_id=row["owner_id"], name=row["owner_name"], time_zone=row["time_zone"])
    return from_row(Schedule, row, address=from_row(Address, row), owner=owner, timing=timing)


def usage_to_row(entry: UsageEntry) -> RowValues:
    return {**to_row(entry, "usage"), **to_row(entry.usage, "written_tokens")}
