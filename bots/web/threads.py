"""HTTP routes of threads and their messages."""

import asyncio
import base64
import hashlib
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator, BaseModel, StringConstraints
from pydantic_core import PydanticCustomError

from bots.inbound.actions import Outcome
from bots.web import request_parsing
from bots.web.deps import API_PERSON, API_PLACE, CHAT_PERSON, DEPS
from bots.web.errors import ApiError
from bots.web.request_parsing import PlaceBody
from core.context.untrusted_text import clean_line
from core.domain.actions import IncomingMessage
from core.domain.ids import new_id
from core.domain.json import JsonObject
from core.domain.outside_text import escape_markdown, escape_name, quote_lines, without_control_characters
from core.domain.threads import ListedThread, Thread, ThreadSnapshot
from core.domain.wire_format import IMAGE_FIELDS, message_object
from core.failpoints import Failpoint

TITLE_CHARACTERS_MAX = 200
PAGE_MESSAGES_MAX = 1000
SHOWN_CHARACTERS_MAX = 1500
"""A message of this length fits into one message of any chat, including what the platforms add."""
_RECEIVE = Failpoint("web.receive")


def _keep_visible(text: str) -> str:
    if not (words := without_control_characters(text).strip()):
        raise PydanticCustomError("empty", "nothing of it can be seen")
    return words


class ChatMessageBody(BaseModel):
    """A message for a chat thread in which the agent has a conversation."""

    address: PlaceBody
    text: Annotated[str, StringConstraints(max_length=SHOWN_CHARACTERS_MAX), AfterValidator(_keep_visible)]
    author: Annotated[str, StringConstraints(max_length=request_parsing.AUTHOR_CHARACTERS_MAX)] = ""

    @property
    def chat_markdown(self) -> str:
        """The message that is posted in the chat, as Markdown."""
        by = f", by **{escape_name(self.author)}**" if self.author else ""
        words = quote_lines(escape_markdown(self.text))
        return f"This came over the HTTP API{by}:\n{words}"


async def create_thread(request: web.Request) -> web.Response:
    """`POST /api/thread`: creates a thread with an optional title, or writes into the chat thread at an address."""
    body = await request_parsing.parse_json_object(request)
    if "address" in body:
        return await _write_in_chat(request, await request_parsing.parse_model(request, ChatMessageBody))
    title = request_parsing.parse_text_field(body, "title", characters_max=TITLE_CHARACTERS_MAX)
    thread = await request.app[DEPS].conversations.create(replace(API_PLACE, thread_key=new_id()), title=title)
    return web.json_response({"thread_id": thread.thread_id}, status=201)


async def _write_in_chat(request: web.Request, body: ChatMessageBody) -> web.Response:
    """Posts the text in the chat as a message of the bot, and starts or steers a run with it. A repeated request finds
    what the first one has posted."""
    deps, key, address = request.app[DEPS], request_parsing.parse_idempotency_key(request), body.address.address
    found = await deps.conversations.find(address)
    if found is None:
        raise ApiError(404, "thread_not_found", "The agent has no conversation at this address.")
    if len(body.chat_markdown) > SHOWN_CHARACTERS_MAX:
        raise ApiError(413, "too_large", f"Shown in a chat, it may have at most {SHOWN_CHARACTERS_MAX} characters.")
    thread_id = found.thread.thread_id
    dedupe_key = f"api:{thread_id}:{key or new_id()}"
    message = IncomingMessage(
        address=address,
        dedupe_key=dedupe_key,
        message_ref="",
        person=replace(CHAT_PERSON, name=f"{CHAT_PERSON.name} ({body.author})" if body.author else CHAT_PERSON.name),
        text=body.text,
        sent_at=datetime.now(UTC),
        is_automatic=True,
    )
    async with deps.post_locks.setdefault(dedupe_key, asyncio.Lock()):
        if not await deps.inbox.is_key_claimed(dedupe_key):
            posted = await deps.post(
                address,
                body.chat_markdown,
                delivery_id=hashlib.sha256(dedupe_key.encode()).hexdigest()[:32],
                may_be_posted=key is not None and not await deps.inbox.claim_key(f"{dedupe_key}:posted"),
            )
            message = replace(message, message_ref=posted)
        outcome = await _receive(request, message)
    return web.json_response({"thread_id": thread_id, "agent_run_id": _run_id(outcome)}, status=202)


async def list_threads(request: web.Request) -> web.Response:
    """`GET /api/threads?cursor=&limit=`: returns the threads of a place or a person, most recently active first."""
    size, before = request_parsing.parse_page_size(request), request_parsing.parse_position(request)
    found = await request.app[DEPS].conversations.newest_threads(
        request_parsing.parse_selection(request), before=before, limit=size + 1
    )

    def shown(one: ListedThread) -> JsonObject:
        return {**thread_object(one.thread), "newest_run_id": one.run_id, "newest_run_status": one.run_status}

    cursor = request_parsing.format_position
    return web.json_response(
        request_parsing.page_object("threads", found, size, shown, lambda one: cursor(one.position))
    )


def thread_object(thread: Thread) -> JsonObject:
    """Returns a thread in the format of responses. `sandbox_id` is the thread ID, or null until the thread first uses a
    sandbox."""
    return {
        "thread_id": thread.thread_id,
        **asdict(thread.address),
        "title": thread.title,
        "state": thread.state,
        "agent_id": thread.agent_id,
        "sandbox_id": thread.thread_id if thread.sandbox_id else None,
        "created_at": thread.created_at.isoformat(),
        "last_activity_at": thread.last_activity_at.isoformat(),
    }


async def show_thread(request: web.Request) -> web.Response:
    """`GET /api/thread/{thread_id}`: returns the state of a thread."""
    snapshot = await require_thread(request)
    active, ask = snapshot.active_run, snapshot.open_ask
    question: JsonObject | None = None
    if ask is not None:
        question = {"ask_id": ask.ask_id, "text": ask.text, "options": list(ask.options)}
    return web.json_response(
        {**thread_object(snapshot.thread), "active_run_id": active.run_id if active else None, "ask": question}
    )


async def list_messages(request: web.Request) -> web.Response:
    """`GET /api/thread/{thread_id}/messages?after=&limit=`: returns messages of all types, in the stream format.

    `after` is a sequence number. Only later messages are returned."""
    snapshot = await require_thread(request)
    after = request_parsing.parse_query_integer(request, "after", default=0, largest=10**12)
    limit = request_parsing.parse_query_integer(request, "limit", default=PAGE_MESSAGES_MAX, largest=PAGE_MESSAGES_MAX)
    messages = await request.app[DEPS].conversations.messages(
        snapshot.thread.thread_id, after_sequence=after, limit=limit
    )
    return web.json_response({"messages": [{**message_object(one), "sequence": one.sequence} for one in messages]})


async def send_image(request: web.Request) -> web.Response:
    """`GET /api/thread/{thread_id}/messages/{message_id}/image`: returns the image of a message."""
    snapshot = await require_thread(request)
    message_id = request_parsing.parse_path_id(request, "message_id")
    message = await request.app[DEPS].conversations.message(snapshot.thread.thread_id, message_id)
    encoded = message and message.content.get(IMAGE_FIELDS.get(message.type, ""))
    if message is None or not isinstance(encoded, str):
        raise ApiError(404, "image_not_found", "The thread has no such message with an image.")
    headers = {"Content-Type": str(message.content.get("mime_type", "image/jpeg")), "X-Content-Type-Options": "nosniff"}
    return web.Response(body=base64.b64decode(encoded), headers=headers)


async def add_message(request: web.Request) -> web.Response:
    """`POST /api/thread/{thread_id}/messages`: adds a message to a thread.

    The message starts a run, is passed to the active run, or answers an open question."""
    snapshot = await require_thread(request)
    thread = snapshot.thread
    if thread.address.platform != "api":
        raise ApiError(409, "not_an_api_thread", "This thread lives in a chat: POST /api/thread takes its address.")
    key = request_parsing.parse_idempotency_key(request)
    draft = await request_parsing.parse_message(request)
    message_ref = f"api:{thread.thread_id}:{key or new_id()}"
    message = IncomingMessage(
        address=thread.address,
        dedupe_key=message_ref,
        message_ref=message_ref,
        person=replace(API_PERSON, name=clean_line(draft.author, 100) or API_PERSON.name),
        text=draft.text,
        sent_at=datetime.now(UTC),
        is_addressed=True,
        files=draft.files,
        agent_id=draft.agent_id,
    )
    outcome = await _receive(request, message)  # after an error, the message may be stored, so its uploads stay
    if outcome.is_ignored:
        request_parsing.discard_uploads(request, draft.files)
    return web.json_response({"agent_run_id": _run_id(outcome)}, status=202)


async def _receive(request: web.Request, message: IncomingMessage) -> Outcome:
    with _RECEIVE:
        return await request.app[DEPS].receive(message)


def _run_id(outcome: Outcome) -> str:
    if outcome.run_id is None:
        raise ApiError(409, "not_taken", outcome.notice or "The message was not taken.")
    return outcome.run_id


async def require_thread(request: web.Request) -> ThreadSnapshot:
    """Returns the thread in the URL path. Raises ApiError 400 if the ID is invalid, and 404 if no thread has it."""
    thread_id = request_parsing.parse_path_id(request, "thread_id")
    snapshot = await request.app[DEPS].conversations.snapshot(thread_id)
    if snapshot is None:
        raise ApiError(404, "thread_not_found", "There is no such thread.")
    return snapshot
