"""A chat platform at the port of its client: a surface whose requests are late, refused or unanswered at random."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.delivery.poster import AnswerStreams
from core.domain.errors import SurfaceError, SurfaceRateLimited, SurfaceRefused, SurfaceUnclear
from core.domain.threads import Address, ChatPage
from core.domain.threads import ChatMessage as ReadMessage
from core.ports import OutgoingFile, Precondition, Reaction
from core.stores import Delivery
from tests.histories.platforms import OTHER_BOT, ChatMessage, Platform
from tests.histories.servers import Chance
from tests.histories.virtual_time import VirtualTimeLoop, current_process

ResultT = TypeVar("ResultT")
CALL_SECONDS_MAX = 15.0
"""How long the client waits for an answer."""
UNDER_WAY_SECONDS_MAX = 0.4
"""How long a request may take to the platform. Nothing can protect a thread from one that comes long after its
process was found dead, because platforms do not know our fences."""
BAD = "answer 'Done bad"
"""The platform never takes an answer that begins so, in whatever form."""


class SimulatedChat:
    """`bots.delivery.poster.DeliverySurface` and `AnswerStreams` for all processes, and what people see."""

    answer_limit = 700
    files_per_message = 2
    edit_interval_seconds = 1.0
    closed_reasons: Mapping[str, str] = {"is_archived": "the channel is archived"}

    def __init__(self, loop: VirtualTimeLoop, chance: Chance, platform: Platform, note: Callable[[str], None]) -> None:
        self.platform = platform.name
        self.messages: dict[str, ChatMessage] = {}
        self.is_readable = chance.random.random() < 0.5
        self.has_streams = chance.random.random() < 0.5
        self.on_shown: Callable[[ChatMessage], None] = lambda _message: None
        self._loop = loop
        self._chance = chance
        self._platform = platform
        self._note = note

    def add(self, address: Address, **fields: Any) -> ChatMessage:
        """Adds a message. Without a thread key, it begins a thread."""
        ref, posted_at = self._platform.new_message(len(self.messages))
        address = replace(address, thread_key=address.thread_key or ref)
        message = ChatMessage(ref, address, posted_at, **fields)
        self.messages[message.ref] = message
        return message

    async def post(
        self,
        address: Address,
        content: Content,
        *,
        files: Sequence[OutgoingFile] = (),
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        def carry_out() -> str:
            attached = {one.delivery_id: one.name for one in files}
            message = self.add(address, delivery_id=delivery_id, files=attached)
            message.shown.append(content)
            self.on_shown(message)
            return message.ref

        name, is_bad = f"post {describe(content)}", BAD in describe(content)
        return await self._call(name, carry_out, precondition, always_fails=is_bad)

    async def edit(
        self, address: Address, message_ref: str, content: Content, *, precondition: Precondition | None = None
    ) -> None:
        def carry_out() -> None:
            message = self.messages[message_ref]
            message.shown.append(content)
            self.on_shown(message)

        await self._call(f"edit {message_ref}: {describe(content)}", carry_out, precondition)

    async def upload(
        self, address: Address, file: OutgoingFile, *, delivery_id: str, precondition: Precondition | None = None
    ) -> str:
        def carry_out() -> str:
            return self.add(address, files={delivery_id: file.name}).ref

        return await self._call(f"upload {file.name}", carry_out, precondition)

    async def find(self, address: Address, delivery_id: str) -> str | None:
        def carry_out() -> str | None:
            found = [one.ref for one in self.messages.values() if delivery_id in (one.delivery_id, *one.files)]
            return found[0] if found else None

        return await self._call(f"find delivery …{delivery_id[-4:]}", carry_out, None)

    async def react(
        self, address: Address, message_ref: str, reaction: Reaction | None, *, precondition: Precondition | None = None
    ) -> None:
        def carry_out() -> None:
            self.messages[message_ref].reaction = reaction

        await self._call(f"react on {message_ref}: {reaction}", carry_out, precondition)

    def file_limit(self, address: Address) -> int:
        return 10_000

    async def find_streams(self, address: Address) -> AnswerStreams | None:
        return self if self.has_streams else None

    async def start(self, address: Address, *, delivery_id: str, precondition: Precondition) -> str:
        return await self._call("start a stream", lambda: self.add(address, delivery_id=delivery_id).ref, precondition)

    async def append(self, address: Address, stream: Delivery, markdown: str, *, precondition: Precondition) -> None:
        await self._call(f"add {len(markdown)} characters", lambda: None, precondition)

    async def finish(
        self, address: Address, stream: Delivery, content: AnswerPart | None, *, precondition: Precondition
    ) -> None:
        """What was added counts as the answer only once the content has replaced it."""

        def carry_out() -> None:
            if content is not None:
                self.messages[str(stream.message_ref)].shown[:] = [content]

        name = f"end the stream with {describe(content) if content else 'nothing'}"
        await self._call(name, carry_out, precondition)

    async def delete(self, address: Address, message_ref: str) -> None:
        await self._call(f"delete {message_ref}", lambda: self.messages.pop(message_ref, None), None)

    async def tell_privately(self, address: Address, person_id: str, text: str) -> None:
        await self._call("tell privately", lambda: None, None)

    async def fallback_addresses(self, address: Address, person_id: str) -> AsyncIterator[Address]:
        raise SurfaceRefused("there is no other place", code="channel_not_found")
        yield address

    @asynccontextmanager
    async def typing(self, address: Address) -> AsyncIterator[None]:
        yield

    async def read(self, address: Address, *, before: datetime, limit: int, after: datetime | None = None) -> ChatPage:
        """`core.ports.ChatHistory.read`. A chat without `is_readable` returns nothing, as if a scope were missing."""
        await asyncio.sleep(self._chance.delay(0.05))
        if not self.is_readable:
            return ChatPage(is_partial=True)
        found = [
            ReadMessage(
                author=one.author,
                text=one.words,
                sent_at=one.posted_at,
                message_ref=one.ref,
                is_app=one.author == self._platform.people[OTHER_BOT],
            )
            for one in self.messages.values()
            if one.author and one.words and one.address == address and one.posted_at < before
        ]
        newest = tuple(one for one in found if after is None or one.sent_at > after)[-limit:]
        return ChatPage(messages=newest)

    async def read_linked(self, address: Address, text: str, *, person_id: str) -> dict[str, ReadMessage | None]:
        return {}

    def parse_sent_at(self, message_ref: str) -> datetime:
        return self.messages[message_ref].posted_at

    async def _call(
        self,
        name: str,
        carry_out: Callable[[], ResultT],
        precondition: Precondition | None,
        *,
        always_fails: bool = False,
    ) -> ResultT:
        """Sends the request in the same step in which the precondition holds, as a client writes to its socket."""
        await asyncio.sleep(self._chance.delay(0.005))
        if precondition is not None:
            await precondition()
        process = current_process()
        sender = process.name if process else "nobody"
        answer: asyncio.Future[ResultT] = self._loop.create_future()
        error, has_effect = self._drawn_failure()
        if always_fails:
            error, has_effect = SurfaceUnclear("internal error"), False

        def arrive() -> None:
            outcome: ResultT | None = None
            suffix = ""
            if error is not None:
                suffix = f" -> {type(error).__name__}, {'done' if has_effect else 'not done'}"
            if has_effect:
                outcome = carry_out()
            self._note(f"{sender}: {name}{f' = {outcome}' if outcome else ''}{suffix}")

            def respond() -> None:
                if not answer.done() and error is None:
                    answer.set_result(outcome)
                elif not answer.done():
                    answer.set_exception(error)

            self._loop.later(min(self._chance.delay(0.05), CALL_SECONDS_MAX), respond)

        self._loop.later(min(self._chance.delay(0.05), UNDER_WAY_SECONDS_MAX), arrive)
        return await answer

    def _drawn_failure(self) -> tuple[SurfaceError | None, bool]:
        """Returns the error that the caller gets, if any, and whether the request is carried out."""
        if self._chance.fails(0.05):
            seconds = self._chance.random.choice((1.0, 2.0, 5.0))
            return SurfaceRateLimited("slow down", retry_after_seconds=seconds), False
        if self._chance.fails(0.04):
            return SurfaceUnclear("the connection broke"), self._chance.random.random() < 0.6
        return None, True


def describe(content: Content) -> str:
    match content:
        case RunStatus(view=view):
            return f"status {view.state} {view.message}".strip()
        case AnswerPart(markdown=markdown):
            return f"answer {markdown!r}"
        case AskPrompt(ask=ask):
            return f"question {ask.text!r}, {ask.state}"
        case Notice(markdown=markdown):
            return f"notice {markdown!r}"
