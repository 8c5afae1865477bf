"""What users do in a history: they write, edit, delete, answer, approve, stop, start afresh and press buttons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bots.delivery.content import AskPrompt, RunStatus
from bots.inbound.actions import CommandCalled, RunButton, RunButtonPressed, UserAction
from core.domain.actions import AskAnswered, IncomingMessage, MessageDeleted, MessageEdited, StopRequested
from core.domain.threads import Address, Person
from tests.histories.chat import ChatMessage, SimulatedChat
from tests.histories.servers import Chance
from tests.histories.virtual_time import VirtualTimeLoop

USERS = (Person(person_id="U1", name="alice"), Person(person_id="U2", name="bob"))
APPROVER = Person(person_id="U3", name="carol")
"""Answers cards in words only; the others press buttons."""
KINDS = ("ask", "fail", "bad", "much", "long", "story", *2 * ("hello", "work", "pay", "remark"))
CLICK_AGAIN_SECONDS = 5.0
FIRST_MENDED = 50
"""The number of messages that are written only to be edited."""


@dataclass
class UserMessage:
    """A message of a user, with its edits as (dedupe key, token) in the order in which they were made."""

    message: ChatMessage
    author: Person
    is_addressed: bool = True
    edits: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """A wish to stop: in words that were sent in a thread at a time, or of the run with this request or id."""

    address: Address
    sent_at: datetime | None = None
    request_ref: str = ""
    run_id: str = ""


class Users:
    """Draws what users do. `send` delivers an event until it is acknowledged; `click` delivers one only once."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        chance: Chance,
        chat: SimulatedChat,
        threads: Sequence[Address],
        *,
        note: Callable[[str], None],
        send: Callable[[UserAction], None],
        click: Callable[[UserAction], None],
    ) -> None:
        self.messages: list[UserMessage] = []
        self.stops: list[Stop] = []
        self.commands: list[CommandCalled] = []
        self.consents: list[ChatMessage] = []
        self._loop = loop
        self._chance = chance
        self._chat = chat
        self._threads = list(threads)
        self._note = note
        self._send = send
        self._click = click
        self._keys = 0
        chat.on_shown = self._read

    def say(self, token: str) -> UserMessage:
        """A user writes to the agent or, with a remark, to nobody in particular."""
        is_addressed = not token.startswith("remark")
        author = self._chance.random.choice(USERS)
        message = self._write(author, token, f"please {token}")
        sent = UserMessage(message, author, is_addressed)
        self.messages.append(sent)
        self._send_message(message, author, is_addressed=is_addressed)
        return sent

    def remark(self) -> None:
        self.say(f"remark-{FIRST_MENDED + len(self.messages)}")

    def _write(self, author: Person, text: str, words: str, place: Address | None = None) -> ChatMessage:
        at = self._chance.random.randrange(len(self._threads))
        address = place or self._threads[at]
        message = self._chat.add(address, text=text, author=author, words=words)
        if place is None:
            self._threads[at] = message.address
        said_in = message.address.thread_key
        self._note(f"{author.name} says in {said_in}: {text} ({message.ref})")
        return message

    def _send_message(self, message: ChatMessage, author: Person, *, is_addressed: bool = True) -> None:
        self._send(
            IncomingMessage(
                address=message.address,
                dedupe_key=f"slack:{message.ref}",
                message_ref=message.ref,
                person=author,
                text=message.words,
                sent_at=message.posted_at,
                is_addressed=is_addressed,
            )
        )

    def stop(self) -> None:
        if not self.messages:
            return
        message = self._chance.random.choice(self.messages).message
        self._note(f"alice asks to stop {message.text}")
        self.stops.append(Stop(message.address, request_ref=message.ref))
        self._send(
            StopRequested(
                address=message.address, dedupe_key=f"stop:{message.ref}", message_ref=message.ref, person=USERS[0]
            )
        )

    def say_stop(self) -> None:
        said = self._write(USERS[0], "stop", "stop")
        self.stops.append(Stop(said.address, sent_at=said.posted_at))
        self._send(
            StopRequested(
                address=said.address,
                dedupe_key=f"slack:{said.ref}",
                message_ref="",
                person=USERS[0],
                sent_at=said.posted_at,
            )
        )

    def say_yes(self) -> None:
        said = self._write(APPROVER, "yes", "yes")
        self.consents.append(said)
        self._send_message(said, APPROVER)

    def edit(self) -> None:
        """A user edits a message, or writes one and mends it twice at once."""
        random = self._chance.random
        if random.random() < 0.5:
            if (sent := self._drawn_message()) is not None:
                self._edit(sent)
            return
        sent = self.say(f"hello-{FIRST_MENDED + len(self.messages)}")
        for _ in range(2):
            self._loop.later(random.uniform(0.01, 0.5), lambda: self._edit(sent))

    def _edit(self, sent: UserMessage) -> None:
        if sent.is_deleted:
            return
        key = self._new_key("edit")
        token = key.replace(":", "-")
        sent.edits.append((key, token))
        sent.message.words = f"please {sent.message.text} {token}"
        self._note(f"{sent.author.name} edits {sent.message.text} to {token}")
        self._send(
            MessageEdited(
                address=sent.message.address,
                dedupe_key=key,
                message_ref=sent.message.ref,
                person=sent.author,
                text=sent.message.words,
                is_addressed=sent.is_addressed,
                sent_at=datetime.now(UTC),
            )
        )

    def delete(self) -> None:
        sent = self._drawn_message()
        if sent is None:
            return
        sent.is_deleted = True
        sent.message.words = ""
        self._note(f"{sent.author.name} deletes {sent.message.text}")
        self._send(
            MessageDeleted(
                address=sent.message.address,
                dedupe_key=f"delete:{sent.message.ref}",
                message_ref=sent.message.ref,
                person=sent.author,
                sent_at=datetime.now(UTC),
            )
        )

    def start_afresh(self) -> None:
        self._command("new")

    def forget(self) -> None:
        self._command("forget", self._chance.random.choice(("yes", "me yes")))

    def _command(self, name: str, argument: str = "") -> None:
        if not self.messages:
            return
        chosen = self._chance.random.choice(self.messages)
        address, person = chosen.message.address, chosen.author
        self._note(f"{person.name} writes {name} {argument} in {address.thread_key}")
        called = CommandCalled(
            address=address, dedupe_key=self._new_key(name), name=name, argument=argument, person=person
        )
        self.commands.append(called)
        self._send(called)

    def press_stop(self) -> None:
        self._press("stop", lambda status: status.view.can_stop)

    def press_retry(self) -> None:
        self._press("retry", lambda status: status.view.state == "failed")

    def _press(self, action: RunButton, is_offered: Callable[[RunStatus], bool]) -> None:
        """A user presses a button of a status message, sometimes twice."""
        statuses = [
            (message, content)
            for message in self._chat.messages.values()
            if message.shown and isinstance(content := message.shown[-1], RunStatus)
        ]
        offered = [pair for pair in statuses if is_offered(pair[1])]
        if offered:
            self._press_button(action, *self._chance.random.choice(offered))

    def _press_button(self, action: RunButton, message: ChatMessage, status: RunStatus) -> None:
        self._note(f"bob presses {action} of {message.ref}")
        if action == "stop":
            self.stops.append(Stop(message.address, run_id=status.run_id))
        press = RunButtonPressed(
            address=message.address,
            dedupe_key=self._new_key(action),
            run_id=status.run_id,
            action=action,
            person=USERS[1],
        )
        for _ in range(self._chance.random.choice((1, 1, 2))):
            self._click(press)

    def _drawn_message(self) -> UserMessage | None:
        newest = [sent for sent in self.messages[-3:] if not sent.is_deleted]
        return self._chance.random.choice(newest) if newest else None

    def _new_key(self, kind: str) -> str:
        self._keys += 1
        return f"{kind}:{self._keys}"

    def _read(self, message: ChatMessage) -> None:
        """Users answer each open question or card, again and again until it shows the answer, and let a run go on."""
        newest, pause = message.shown[-1], self._chance.random.uniform(0.3, 4)
        if isinstance(newest, AskPrompt) and len(message.shown) == 1:
            self._loop.later(pause, lambda: self._answer(message))
        if isinstance(newest, RunStatus) and newest.view.can_continue:
            self._loop.later(pause, lambda: self._press_button("continue", message, newest))

    def _answer(self, message: ChatMessage) -> None:
        content = message.shown[-1]
        if not isinstance(content, AskPrompt) or content.ask.state != "open":
            return
        options = content.ask.options
        is_refused = content.ask.kind == "approval" and self._chance.fails(0.3)
        at = len(options) - 1 if is_refused else 0
        self._loop.later(CLICK_AGAIN_SECONDS, lambda: self._answer(message))
        if content.ask.kind == "question" and self._chance.random.random() < 0.5:
            words = self._chance.random.choice((options[at].capitalize(), "something else"))
            said = self._write(USERS[1], words, words, message.address)
            self._send_message(said, USERS[1])
            return
        self._note(f"bob presses {options[at]!r} of {message.ref}")
        self._click(
            AskAnswered(
                address=message.address,
                dedupe_key=self._new_key("click"),
                ask_id=content.ask.ask_id,
                text="" if content.ask.kind == "question" else options[at],
                option=at if content.ask.kind == "question" else None,
                person=USERS[1],
                sent_at=datetime.now(UTC),
            )
        )


OPERATIONS: Mapping[str, Callable[[Users], None]] = {
    "remark": Users.remark,
    "edit": Users.edit,
    "delete": Users.delete,
    "new": Users.start_afresh,
    "forget": Users.forget,
    "stop button": Users.press_stop,
    "stop in words": Users.say_stop,
    "yes": Users.say_yes,
    "retry button": Users.press_retry,
}
"""What users do besides writing messages and stopping a run in words. They also answer each question and card."""
