"""What must hold at the end of every history, whatever failed in it."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import combinations, groupby, product
from operator import itemgetter
from typing import Any

from bots.delivery.content import AnswerPart, AskPrompt, Content, RunStatus
from bots.delivery.outbox import REST_IN_FILE
from bots.delivery.poster import SURE_SECONDS
from core.context import background_messages
from core.context.background_messages import UNREAD_KEY
from core.domain.approval import APPROVE_ALL, APPROVE_ALWAYS, APPROVE_ONCE, parse_choice
from core.domain.json import JsonObject
from core.run.execute import BROKEN
from core.stores import REPLY_ORDINALS
from storage.sql.stores.erasure import REMOVED
from tests.histories.chat import UNDER_WAY_SECONDS_MAX
from tests.histories.model import CONTEXT, DONE, FILES, TOKEN, SentRequest, paragraphs, said_in
from tests.histories.platforms import OTHER_BOT, ChatMessage
from tests.histories.servers import SqliteMemory
from tests.histories.users import APPROVER, Command, Stop, UserMessage

FINAL_STATES = {
    "completed": ("completed", "asking", "answered"),
    "limited": ("limited",),
    "failed": ("failed",),
    "stopped": ("stopped",),
}
FINAL_REACTIONS = {"completed": "done", "limited": "limited", "failed": "failed", "stopped": "failed"}
_UNSETTLED = {
    "the runs": "SELECT run_id, status FROM run WHERE status IN ('queued', 'running', 'waiting')",
    "the open deliveries": "SELECT run_id FROM rendering WHERE is_open",
    "the unread inputs": "SELECT text FROM thread_input WHERE taken_by IS NULL",
}


@dataclass(frozen=True, slots=True)
class Reception:
    """When bots began to receive an event for the first time, and when each of them had stored or ignored it."""

    begun_at: float
    ended_at: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened in a history. `noted` counts the lines that the tools wrote. `receptions` has the times of each
    event, and `taken` the events that were not ignored, both by dedupe key. `reads_chat`: whether the agent can read
    what people said before it came. `run_tokens_max` is the budget of each run."""

    user_messages: Sequence[UserMessage]
    stops: Sequence[Stop]
    consents: Sequence[ChatMessage]
    commands: Sequence[Command]
    messages: Mapping[str, ChatMessage]
    requests: Sequence[SentRequest]
    reads_chat: bool
    run_tokens_max: int | None
    noted: Counter[str]
    receptions: Mapping[str, Reception]
    taken: Collection[str]

    def is_before(self, key: str, later: str) -> bool:
        """Whether all receptions of one event had ended before that of another began."""
        earlier = self.receptions.get(key)
        ends = earlier.ended_at if earlier else []
        return bool(ends) and later in self.receptions and ends[-1] < self.receptions[later].begun_at


def unsettled(memory: SqliteMemory, messages: Mapping[str, ChatMessage]) -> list[str]:
    """Returns what is still under way."""
    waits = [f"{what}: {rows}" for what, query in _UNSETTLED.items() if (rows := memory.rows(query))]
    for message in messages.values():
        newest = message.shown[-1] if message.shown else None
        is_erased = message.delivery_id in memory.erased()
        if isinstance(newest, AskPrompt) and newest.ask.state == "open" and not is_erased:
            waits.append(f"the question {message.ref} offers its buttons")
    return waits


def find_problems(memory: SqliteMemory, seen: Seen) -> list[str]:
    return [
        *_of_inputs(memory, seen),
        *_of_runs(memory, seen),
        *_of_reactions(memory, seen),
        *_of_deliveries(memory, seen),
        *_of_answers(memory, seen),
        *_of_parts(memory, seen),
        *_of_order(memory, seen),
        *_of_calls(memory),
        *_of_budgets(memory, seen),
        *_of_approvals(memory, seen),
        *_of_stops(memory, seen),
        *_of_words(memory, seen),
        *_of_choices(memory, seen),
        *_of_edits(memory, seen),
        *_of_remarks(memory, seen),
        *_of_context(memory, seen),
        *_of_requests(seen),
        *_of_changes(memory, seen),
        *_of_erasures(memory, seen),
        *(f"the tool noted {line!r} {times} times" for line, times in seen.noted.items() if times > 1),
    ]


def _of_inputs(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    stored = Counter(ref for (ref,) in memory.rows("SELECT message_ref FROM thread_input WHERE message_ref != ''"))
    overtaken = memory.rows(
        "SELECT message_ref FROM heard_message JOIN run USING (thread_id) WHERE stopped_until >= heard_message.sent_at"
    )
    stopped = {ref for (ref,) in overtaken}
    for sent in seen.user_messages:
        message, times = sent.message, stored[sent.message.ref]
        is_gone = sent.is_deleted or message.ref in {*memory.erased(), *stopped}
        is_due = sent.is_addressed and not is_gone
        if times > 1 + len(sent.edits) or (times < 1 and is_due):
            yield f"{message.text} was stored {times} times"


def _of_runs(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    ends = Counter(
        run_id
        for (run_id,) in memory.rows(
            'SELECT run_id FROM run_event WHERE body LIKE \'%"kind":"run_finished"%\''
            ' OR body LIKE \'%"kind":"run_failed"%\''
        )
    )
    statuses = _status_messages(seen)
    for run_id, status, error in memory.rows("SELECT run_id, outcome, error FROM run_outcome"):
        if error == BROKEN:
            yield f"run {run_id} broke"
        if ends[run_id] != 1:
            yield f"run {run_id} has {ends[run_id]} terminal events"
        yield from _of_status(run_id, status, statuses.get(run_id, []))
    for held in memory.rows("SELECT run_id FROM lease WHERE run_id IS NOT NULL"):
        yield f"the lease of run {held} is still held"


def _of_status(run_id: str, status: str, shown: Sequence[ChatMessage]) -> Iterator[str]:
    if len(shown) > 1:
        yield f"run {run_id} has {len(shown)} status messages"
    if not shown and status != "completed":
        yield f"run {run_id} is {status}, and nobody was told"
    for one in shown:
        content = one.shown[-1]
        assert isinstance(content, RunStatus)
        if content.view.state not in FINAL_STATES[status]:
            yield f"the status {one.ref} of the {status} run {run_id} says {content.view.state}"


def _of_reactions(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """The reaction on a message shows how the newest run ended that it requested, or that has read it."""
    runs = memory.rows(
        "SELECT request_ref, run_id, outcome, number FROM run_outcome UNION"
        " SELECT message_ref, run_id, outcome, number FROM thread_input JOIN run_outcome ON run_id = taken_by"
        " ORDER BY number"
    )
    newest_of = {ref: (run_id, status) for ref, run_id, status, _ in runs if ref}
    refused = {
        run_id
        for delivery_id, run_id in memory.rows("SELECT delivery_id, run_id FROM delivery")
        if delivery_id in _refused(memory)
    }
    for ref, (run_id, status) in newest_of.items():
        request = seen.messages[ref]
        expected = "failed" if run_id in refused else FINAL_REACTIONS.get(status)
        if request.reaction != expected:
            yield f"{request.text} bears {request.reaction}, and its run {run_id} is {status}"


def _status_messages(seen: Seen) -> dict[str, list[ChatMessage]]:
    found: dict[str, list[ChatMessage]] = {}
    for message in seen.messages.values():
        if message.shown and isinstance(message.shown[0], RunStatus):
            found.setdefault(message.shown[0].run_id, []).append(message)
    return found


def _of_deliveries(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    own = [one for one in seen.messages.values() if one.author is None]
    posted = Counter(key for one in own for key in _delivery_ids(one))
    stored = memory.rows("SELECT delivery_id, run_id, slot, state, message_ref, ordinal FROM delivery")
    streams = {ref for _, _, slot, _, ref, _ in stored if slot == "stream"}
    for delivery_id, run_id, slot, state, ref, _ in stored:
        if delivery_id in _refused(memory):
            continue
        if state != "delivered":
            yield f"the {slot} of run {run_id} is {state}"
        is_streamed = slot == "answer" and ref in streams - {None}
        is_left_out = slot in ("stream", "status") and ref is None  # a status gives way to answers
        if not posted[delivery_id] and (is_streamed or is_left_out):
            continue
        if posted[delivery_id] != 1:
            yield f"the {slot} of run {run_id} was posted {posted[delivery_id]} times"
        elif ref is None or delivery_id not in _delivery_ids(seen.messages[ref]):
            yield f"the {slot} of run {run_id} is recorded as message {ref}"
    unknown = set(posted) - {row[0] for row in stored} - set(memory.erased())
    if unknown:
        yield f"{len(unknown)} messages belong to no delivery"
    results = Counter(
        run_id
        for _, run_id, slot, *_, ordinal in stored
        if slot == "ask" or (slot == "answer" and ordinal % REPLY_ORDINALS == 0)
    )
    left = Counter(
        run_id for (run_id,) in memory.rows('SELECT run_id FROM run_event WHERE body LIKE \'%"kind":"reply_left"%\'')
    )
    approvals = Counter(run_id for (run_id,) in memory.rows("SELECT run_id FROM pending_ask WHERE kind = 'approval'"))
    for run_id, status in memory.rows("SELECT run_id, outcome FROM run_outcome"):
        earlier, last = left[run_id] + approvals[run_id], status == "completed"
        if results[run_id] != earlier + last:
            yield f"the {status} run {run_id} has {results[run_id]} answers and questions"


def _delivery_ids(message: ChatMessage) -> list[str]:
    return [key for key in (message.delivery_id, *message.files) if key]


def _of_parts(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """The parts of an answer are there, follow one another and contain all of it; each file of it is there once."""
    place_of = {
        row[0]: tuple(row[1:])
        for row in memory.rows(
            f"SELECT delivery_id, run_id, ordinal / {REPLY_ORDINALS} FROM delivery"  # noqa: S608 - a constant
        )
    }
    names = Counter(name for one in seen.messages.values() for name in one.files.values())
    left_out = {place_of[delivery_id] for delivery_id in _refused(memory)}
    posted: dict[str, list[tuple[object, Content]]] = {}
    for one in seen.messages.values():
        if one.shown and isinstance(content := one.shown[-1], AnswerPart | AskPrompt):
            key = place_of.get(one.delivery_id, one.delivery_id)
            posted.setdefault(one.address.thread_key, []).append((key, content))
    for contents in posted.values():
        for key, group in groupby(contents, key=itemgetter(0)):
            parts = [part for _, part in group if isinstance(part, AnswerPart)]
            text = "\n\n".join(part.markdown for part in parts)
            tokens = _done_tokens(text)
            lines = [line for token in tokens for line in paragraphs(token)]
            is_whole = REST_IN_FILE in text or re.findall(r"Paragraph .*", text) == lines
            if not parts or not isinstance(key, tuple) or key in left_out:
                continue  # a question, erased, or not taken by the platform
            if not is_whole or [one.part for one in parts] != [*range(1, parts[0].parts + 1)]:
                yield f"the answer {key} has the parts {parts}"
            long = [token for token in tokens if token.startswith("long")]
            for name in (f"{token}-{at}.txt" for token in long for at in range(FILES)):
                if names[name] != 1:
                    yield f"{name} was posted {names[name]} times"


def _done_tokens(text: str) -> list[str]:
    return TOKEN.findall(" ".join(DONE.findall(text)))


def _refused(memory: SqliteMemory) -> dict[str, str]:
    """Returns the answers that the platform never took, by delivery id."""
    failed = memory.rows("SELECT delivery_id, body FROM delivery WHERE state = 'failed'")
    return {one: body for one, body in failed if '"Done bad' in body}


def _of_answers(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """Each message is named by one answer, unless its answer was cut short by a stop, or its run was stopped, or ended
    with a failure, a limit or a question and no later run of its thread was completed."""
    answers = Counter(token for _, tokens in _answers(memory, seen) for token in tokens)
    read = memory.rows(
        "SELECT i.message_ref, i.taken_by, own.status = 'stopped',"
        " (SELECT count(*) FROM run r JOIN delivery d ON d.run_id = r.run_id WHERE r.thread_id = i.thread_id"
        " AND r.status = 'completed' AND d.slot = 'answer' AND r.finish_reason NOT IN ('max_iterations', 'budget')"
        " AND (r.number > own.number OR r.run_id = own.run_id"
        " AND NOT EXISTS (SELECT 1 FROM pending_ask a WHERE a.run_id = r.run_id AND a.kind = 'question')))"
        " FROM thread_input i JOIN run own ON own.run_id = i.taken_by WHERE i.message_ref != ''"
    )
    deleted = {sent.message.ref for sent in seen.user_messages if sent.is_deleted}
    said = memory.rows(
        "SELECT content FROM message JOIN run USING (run_id) WHERE run.status = 'stopped' AND type = 'assistant'"
    )
    cut_short = [body for (body,) in said if "Done" in body]
    lost = {token for text in (*_refused(memory).values(), *cut_short) for token in TOKEN.findall(text)}
    for ref, run_id, is_stopped, later in read:
        token = seen.messages[ref].text
        if token in lost:
            continue
        if not TOKEN.fullmatch(token) or token.startswith("fail") or ref in deleted:
            continue
        is_owed = later and not is_stopped
        if answers[token] > 1 or (is_owed and not answers[token]):
            yield f"{token}, read by run {run_id}, has {answers[token]} answers"


def _answers(memory: SqliteMemory, seen: Seen) -> list[tuple[str, list[str]]]:
    """Returns the run and the tokens of each answer, in the order in which they were posted."""
    run_of = dict(memory.rows("SELECT delivery_id, run_id FROM delivery"))
    return [
        (str(run_of.get(one.delivery_id, "")), _done_tokens(text))
        for one in seen.messages.values()
        if one.shown and (text := _reply_text(one.shown[0]))
    ]


def _reply_text(content: Content) -> str:
    match content:
        case AnswerPart(markdown=markdown):
            return markdown
        case AskPrompt(ask=ask):
            return ask.text
        case _:
            return ""


def _of_order(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """The results of a conversation's runs appear in the order of the runs, and runs read inputs in their order.

    A message that was stored after a later one may be read after it, because a run may have been reading that one.
    """
    run_of = dict(memory.rows("SELECT delivery_id, run_id FROM delivery"))
    runs = {run_id: row for run_id, *row in memory.rows("SELECT run_id, thread_id, number FROM run")}
    by_thread: dict[str, list[tuple[int, str]]] = {}
    for one in seen.messages.values():
        if one.shown and isinstance(one.shown[0], AnswerPart | AskPrompt):
            thread_id, number = runs.get(run_of.get(one.delivery_id), ("none", 0))
            by_thread.setdefault(thread_id, []).append((number, one.ref))
    for thread, posted in by_thread.items():
        if posted != sorted(posted, key=lambda pair: pair[0]):
            yield f"the answers in {thread} are out of order: {posted}"
    taken = memory.rows(
        "SELECT i.thread_id, number, dedupe_key FROM thread_input i JOIN run ON run_id = taken_by"
        " ORDER BY i.thread_id, position"
    )
    for (thread, number, key), (other, later_number, later_key) in combinations(taken, 2):
        is_late = not seen.is_before(key, later_key)
        if thread == other and number > later_number and not is_late:
            yield f"runs read inputs out of order: {taken}"


def _of_budgets(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """No run calls the model once its budget is used up."""
    calls = memory.rows("SELECT run_id, input_tokens + output_tokens FROM usage WHERE run_id != '' ORDER BY created_at")
    before = Counter[str]()
    for run_id, tokens in calls:
        if seen.run_tokens_max and before[run_id] >= seen.run_tokens_max:
            yield f"run {run_id} calls the model after {before[run_id]} tokens"
        before[run_id] += tokens


def _of_calls(memory: SqliteMemory) -> Iterator[str]:
    rows = memory.rows("SELECT thread_id, content FROM message WHERE is_llm_message ORDER BY thread_id, sequence")
    for thread_id, messages in groupby(rows, key=itemgetter(0)):
        for problem in _find_call_problems([json.loads(body) for _, body in messages]):
            yield f"{thread_id} {problem}"


def _find_call_problems(messages: Sequence[JsonObject]) -> Iterator[str]:
    """Each call of a tool has its result before anything else follows."""
    open_calls: list[str] = []
    for message in messages:
        role, call_id = message["role"], message.get("tool_call_id")
        if role == "tool" and call_id in open_calls:
            open_calls.remove(str(call_id))
        elif role == "tool":
            yield f"has a result of {call_id}, which was not called"
        elif open_calls:
            yield f"has no results of {open_calls} before {str(message)[:60]}"
            open_calls = []
        if role == "assistant":
            calls: Any = message.get("tool_calls") or ()
            open_calls = [call["id"] for call in calls]
    if open_calls:
        yield f"has no results of {open_calls} at its end"


def _of_requests(seen: Seen) -> Iterator[str]:
    """A request begins with the instructions, ends with what the model has to react to, and is complete."""
    for request in seen.requests:
        roles = [str(message["role"]) for message in request.messages]
        if "system" in roles[1:] or roles[0] != "system" or roles[-1] not in ("user", "tool"):
            yield f"a request of run {request.run_id} has the roles {roles}"
        for problem in _find_call_problems(request.messages):
            yield f"a request of run {request.run_id} {problem}"


def _of_changes(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """The model reads no text that was replaced or withdrawn before its message was built."""
    rows = memory.rows(
        "SELECT message.content, message.created_at, run.created_at FROM message JOIN run USING (run_id)"
        " WHERE type = 'user'"
    )
    built = [
        (body, _seconds(run_created_at if CONTEXT in body else created_at)) for body, created_at, run_created_at in rows
    ]
    for sent in seen.user_messages:
        first = rf"please {sent.message.text}\b(?! edit-)"
        texts = [first, *(rf"\b{token}\b" for _, token in sent.edits)]
        changes = [key for key, _ in sent.edits]
        if sent.is_deleted:
            changes.append(f"delete:{sent.message.ref}")
        for at, key in enumerate(changes):
            ends = seen.receptions[key].ended_at
            is_known = key in seen.taken or seen.is_before(key, sent.message.ref)
            for text, (body, built_at) in product(texts[: at + 1], built):
                is_void = ends and ends[0] < built_at and (is_known or CONTEXT in body)
                if is_void and re.search(text, body):
                    yield f"the model read {text} although {key} had changed it"


def _of_erasures(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """After an erasure, nothing of the text is sent to a model or posted.

    The chat itself still has what people said, and the model may read it there. Each worker may have one request of a
    run under way.
    """
    erased = memory.erased()
    # the poster looks at its lease again only after SURE_SECONDS
    under_way = timedelta(seconds=SURE_SECONDS + UNDER_WAY_SECONDS_MAX)
    for message in seen.messages.values():
        erased_at = erased.get(message.delivery_id)
        if erased_at is not None and message.posted_at > erased_at + under_way:
            yield f"{message.ref} was posted after it had been erased"
    words = {
        one.message.ref: re.compile(rf"please {one.message.text}\b")
        for one in seen.user_messages
        if one.message.ref in erased and not one.is_deleted
    }
    created_at = {
        run_id: datetime.fromisoformat(at).replace(tzinfo=UTC)
        for run_id, at in memory.rows("SELECT run_id, created_at FROM run")
    }
    late, repeated = Counter[str](), Counter[tuple[str, str]]()
    for request in seen.requests:
        told = "\n".join(map(said_in, request.messages))
        late[request.run_id] += erased.get(request.run_id, request.sent_at) < request.sent_at
        if late[request.run_id] > 1:
            yield f"run {request.run_id} goes on after it was erased"
        for ref, pattern in words.items():
            begun_at, removed_at = created_at.get(request.run_id), erased.get(f"words of {ref}", request.sent_at)
            is_told = pattern.search(told) is not None
            repeated[request.attempt, ref] += is_told and removed_at < request.sent_at
            if (begun_at and erased[ref] < begun_at and is_told) or repeated[request.attempt, ref] > 1:
                yield f"run {request.run_id} sent {pattern.pattern} after it was erased"


def _seconds(stored: str) -> float:
    return datetime.fromisoformat(stored).replace(tzinfo=UTC).timestamp()


def _of_remarks(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """A message without a mention is for the agent if it answers its question, or if nobody else has written.

    What another bot writes, or is for that bot only, never is. What is for others gets no sign.
    """
    written = memory.rows(
        "SELECT thread_id, message_ref, author_id FROM thread_input"
        " UNION SELECT thread_id, message_ref, author_id FROM heard_message"
    )
    thread_of = dict(memory.rows("SELECT message_ref, thread_id FROM thread_input"))
    answers = {answer for (answer,) in memory.rows("SELECT answer FROM pending_ask")}
    for sent in seen.user_messages:
        message, author_id = sent.message, sent.author.person_id
        key, thread_id = message.ref, thread_of.get(message.ref)
        if sent.is_others and (thread_id or message.reaction):
            yield f"{message.text} was for the agent, although it is another bot's"
        if sent.is_addressed or sent.is_others or sent.is_deleted or message.ref in memory.erased():
            continue
        others = [
            ref
            for thread, ref, other_id in written
            if thread == thread_id and other_id != author_id
            if seen.is_before(ref, key)
        ]
        root = seen.messages.get(message.address.thread_key)
        if thread_id and root and root.words and root.author != sent.author:
            is_forgotten = any(one.message.author == root.author and one.name == "forget" for one in seen.commands)
            others += [] if is_forgotten or root.ref in memory.erased() else [root.ref]
        is_answer = any(message.text in str(answer).split() for answer in answers)
        if others and not is_answer:
            yield f"{message.text} was for the agent, although others wrote {others}"
        if thread_id is None and message.reaction:
            yield f"{message.text} bears {message.reaction}"
        if thread_id is None and _is_alone(sent, seen):
            yield f"{message.text} was not for the agent, although nobody else has written"


def _is_alone(sent: UserMessage, seen: Seen) -> bool:
    """Whether the user began the thread with a message to the agent, which came first, and nobody else wrote in it."""
    place = sent.message.address
    first = next((one for one in seen.user_messages if one.message.ref == place.thread_key), None)
    if first is None or not first.is_addressed or first.is_deleted:
        return False
    written = [one for one in seen.messages.values() if one.author and one.address == place]
    others = [one for one in written if one.author and one.author.name != OTHER_BOT]
    is_fresh = not any(one.message.address == place or one.name == "forget" for one in seen.commands)
    return is_fresh and all(
        one.author == sent.author and (one is first.message or seen.is_before(first.message.ref, one.ref))
        for one in others
    )


def _of_context(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """The model reads what people said to each other before the messages that it has to answer."""
    inputs = dict(memory.rows("SELECT message_ref, thread_id FROM thread_input"))
    heard = dict(memory.rows("SELECT message_ref, thread_id FROM heard_message"))
    thread_of = dict(memory.rows("SELECT run_id, thread_id FROM run"))
    unread = {
        json.loads(metadata)["message_ref"]
        for (metadata,) in memory.rows(
            f"SELECT metadata FROM message WHERE metadata LIKE '%{UNREAD_KEY}%'"  # noqa: S608 - a constant
        )
    }
    by_token = {sent.message.text: sent for sent in seen.user_messages}
    for request in seen.requests:
        text = json.dumps(request.messages)
        if any(called.name == "forget" for called in seen.commands):
            return
        tokens = TOKEN.findall("\n".join(map(said_in, request.messages)))
        read = [by_token[token].message for token in tokens if token in by_token]
        for remark in seen.user_messages:
            message, key = remark.message, remark.message.ref
            later = [
                one.ref
                for one in read
                if one.address == message.address and one.posted_at > message.posted_at
                if one.ref not in unread
            ]
            is_read = seen.reads_chat and background_messages._UNREAD not in text
            is_stored = heard.get(message.ref) == thread_of.get(request.run_id, "none") and any(
                seen.is_before(key, other) for other in later
            )
            if remark.is_addressed or message.ref in inputs or not later or not message.words:
                continue
            if (is_read or is_stored) and not re.search(rf"\b{message.text}\b", text):
                yield f"a request of run {request.run_id} lacks {message.text}"


def _of_edits(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """The newest text of a message that was edited is read, unless the edit was ignored or the message deleted."""
    bodies = memory.rows("SELECT content FROM message")
    read = {token for (body,) in bodies for token in TOKEN.findall(body)}
    for sent in seen.user_messages:
        if sent.edits and not sent.is_deleted and sent.message.ref not in memory.erased():
            key, token = sent.edits[-1]
            if key in seen.taken and token not in read:
                yield f"the edit {token} of {sent.message.text} was taken, and is not read"


def _of_approvals(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """A payment is made only if a user approved it."""
    approved = " ".join(
        text
        for text, answer in memory.rows(
            "SELECT text, answer FROM pending_ask WHERE kind = 'approval' AND state = 'answered'"
        )
        if parse_choice(answer) in (APPROVE_ONCE, APPROVE_ALWAYS, APPROVE_ALL)
    )
    forgotten = {seen.messages[one].text for one in memory.erased() if one in seen.messages}
    for line in seen.noted:
        is_known = line.split()[0] not in forgotten
        if line.startswith("pay") and is_known and line not in approved:
            yield f"{line} was paid, and no user approved it"


def _of_stops(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """A run stops only if somebody wished it after its request, deleted that, or erased who asked for the run."""
    deleted = {sent.message.ref for sent in seen.user_messages if sent.is_deleted}
    stopped = memory.rows(
        "SELECT run_id, request_ref, thread_key FROM run JOIN thread USING (thread_id)"
        " WHERE stop_requested AND requester_id IS NOT NULL"
    )
    for run_id, ref, thread_key in stopped:
        asked_at = seen.messages[ref].posted_at
        is_wished = any(
            ref == stop.request_ref
            or run_id == stop.run_id
            or (stop.address.thread_key == thread_key and stop.sent_at and stop.sent_at > asked_at)
            for stop in seen.stops
        ) or any(one.name == "forget" and one.message.address.thread_key == thread_key for one in seen.commands)
        if not is_wished and ref not in deleted:
            yield f"run {run_id} of {seen.messages[ref].text} was stopped, and nobody wished it"


def _of_choices(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """The answer to a question is one of its options, as it is written there, or what somebody wrote."""
    said = {one.words for one in seen.messages.values()} | {"Stop", REMOVED}
    for sent in seen.user_messages:
        first = f"please {sent.message.text}"
        said |= {first, *(f"{first} {token}" for _, token in sent.edits)}
    questions = memory.rows("SELECT options, answer FROM pending_ask WHERE state = 'answered' AND kind = 'question'")
    for body, answer in questions:
        options = json.loads(body)
        is_option = answer.casefold() in [one.casefold() for one in options]
        if answer not in options and (is_option or answer not in said):
            yield f"a question with the options {options} was answered with {answer!r}"


def _of_words(memory: SqliteMemory, seen: Seen) -> Iterator[str]:
    """Words answer only what was shown when they were sent."""
    shown_at = {
        content.ask.ask_id: message.posted_at
        for message in seen.messages.values()
        if message.shown and isinstance(content := message.shown[0], AskPrompt)
    }
    said = {f"please {sent.message.text}": sent.message.posted_at for sent in seen.user_messages}
    answered = memory.rows(
        "SELECT ask_id, text, answer, answered_by_name, thread_key FROM pending_ask JOIN thread USING (thread_id)"
        " WHERE pending_ask.state = 'answered'"
    )
    for ask_id, text, answer, name, thread_key in answered:
        times = [said[answer]] if answer in said else []
        if str(name).lower() == APPROVER:
            times = [one.posted_at for one in seen.consents if one.address.thread_key == thread_key]
        if times and not any(sent_at > shown_at[ask_id] for sent_at in times):
            yield f"{text!r} was answered with {answer!r} before it was shown"
