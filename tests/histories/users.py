"""What users do in a history: they write, edit, delete, answer, approve, stop, start afresh and press buttons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal

from bots.delivery.content import AskPrompt, RunStatus
from core.domain.approval import APPROVE_ONCE, DENY
from core.domain.threads import Address, Person
from tests.histories.chat import SimulatedChat
from tests.histories.platforms import BOT, OTHER_BOT, ChatMessage, Event, Platform
from tests.histories.servers import Chance
from tests.histories.virtual_time import VirtualTimeLoop

ALICE, BOB, APPROVER = "alice", "bob", "carol"
"""The approver answers cards in words only; the others press buttons, or react to a card."""
KINDS = ("ask", "fail", "bad", "much", "long", "story", *2 * ("hello", "work", "pay", "remark"))
CLICK_AGAIN_SECONDS = 5.0
FIRST_MENDED, LAST_ASKED = 50, 999
"""The numbers of messages that are written only to be edited, and of those that are written after them."""


@dataclass
class UserMessage:
    """A message of a user, or of another bot, with its edits as (event, token) in the order in which they were made.
    `mention` is what it begins with. `is_others`: another bot wrote it, or it is only for that bot."""

    message: ChatMessage
    author: Person
    mention: str = ""
    is_addressed: bool = True
    is_others: bool = False
    edits: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """A wish to stop: in words that were sent in a thread at a time, or of the run with this request or id."""

    address: Address
    sent_at: datetime | None = None
    request_ref: str = ""
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    message: ChatMessage


class Users:
    """Draws what users do. `send` delivers an event until it is acknowledged; `click` delivers one only once."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        chance: Chance,
        chat: SimulatedChat,
        platform: Platform,
        threads: Sequence[Address],
        *,
        note: Callable[[str], None],
        send: Callable[[Event], None],
        click: Callable[[Event], None],
    ) -> None:
        self.messages: list[UserMessage] = []
        self.stops: list[Stop] = []
        self.commands: list[Command] = []
        self.consents: list[ChatMessage] = []
        self._loop = loop
        self._chance = chance
        self._chat = chat
        self._platform = platform
        self._threads = list(threads)
        self._note = note
        self._send = send
        self._click = click
        self._keys = 0
        self._mention = self._mention_of(BOT)
        chat.on_shown = self._read

    def _mention_of(self, name: str) -> str:
        return f"<@{self._platform.people[name].person_id}> "

    def say(self, token: str, place: Address | None = None) -> UserMessage:
        """A user writes to the agent or, with a remark, to nobody in particular."""
        is_addressed = not token.startswith("remark")
        mention = self._mention if is_addressed else ""
        return self._say(self._chance.random.choice((ALICE, BOB)), token, mention, place, is_addressed=is_addressed)

    def _say(
        self, name: str, token: str, mention: str, place: Address | None = None, reply_to: str = "", **fields: bool
    ) -> UserMessage:
        message = self._write(name, token, f"please {token}", mention, place, reply_to)
        sent = UserMessage(message, self._platform.people[name], mention, **fields)
        self.messages.append(sent)
        return sent

    def talk_to_other_bot(self) -> None:
        """Another bot writes in a thread, maybe to the agent, and then a user writes to the other bot."""
        random = self._chance.random
        if not self.messages:
            return
        chosen, mention = random.choice(self.messages), random.choice(("", self._mention))
        user = ALICE if chosen.author.name == OTHER_BOT else chosen.author.name.lower()
        place, others = chosen.message.address, {"is_addressed": False, "is_others": True}
        bots = self._say(OTHER_BOT, self._new_remark(), mention, place, **others).message

        def write_to_bot() -> None:
            is_reply = self._platform.name == "discord" and random.random() < 0.7
            call = "" if is_reply else self._mention_of(OTHER_BOT)
            self._say(user, self._new_remark(), call, place, bots.ref if is_reply else "", **others)

        self._loop.later(random.uniform(0.1, 4), write_to_bot)

    def _new_remark(self) -> str:
        return f"remark-{FIRST_MENDED + len(self.messages)}"

    def remark(self) -> None:
        self.say(self._new_remark())

    def _write(
        self, name: str, text: str, words: str, mention: str, place: Address | None = None, reply_to: str = ""
    ) -> ChatMessage:
        at = self._chance.random.randrange(len(self._threads))
        address = place or self._threads[at]
        message = self._chat.add(address, text=text, author=self._platform.people[name], words=words)
        if place is None:
            self._threads[at] = message.address
        self._note(f"{name} says in {message.address.thread_key}: {mention}{text} ({message.ref})")
        self._send(self._platform.post(message, mention + words, reply_to))
        return message

    def stop(self) -> None:
        if not self.messages:
            return
        message = self._chance.random.choice(self.messages).message
        self._note(f"alice asks to stop {message.text}")
        self.stops.append(Stop(message.address, request_ref=message.ref))
        self._send(self._platform.react(message, "stop", ALICE, self._new_key("stop")))

    def say_stop(self) -> None:
        said = self._write(ALICE, "stop", "stop", self._chance.random.choice(("", self._mention)))
        self.stops.append(Stop(said.address, sent_at=said.posted_at))
        self._ask_later(said.address)

    def say_yes(self) -> None:
        self.consents.append(self._write(APPROVER, "yes", "yes", self._mention))

    def edit(self) -> None:
        """A user edits a message; or writes one, mends it twice at once, and then somebody writes to the agent."""
        random, drawn = self._chance.random, self._drawn_message()
        if random.random() < 0.4:
            if drawn is not None:
                self._edit(drawn)
            return
        place = drawn.message.address if drawn and random.random() < 0.7 else None
        sent = self.say(f"{random.choice(('hello', 'remark'))}-{FIRST_MENDED + len(self.messages)}", place)
        for _ in range(2):
            self._loop.later(random.uniform(0.01, 0.5), lambda: self._edit(sent))
        self._ask_later(sent.message.address)

    def _ask_later(self, place: Address) -> None:
        self._keys += 1
        ask = partial(self.say, f"work-{LAST_ASKED - self._keys}", place)
        self._loop.later(self._chance.random.uniform(0.1, 4), ask)

    def _edit(self, sent: UserMessage) -> None:
        if sent.is_deleted:
            return
        key = self._new_key("edit")
        token = key.replace(":", "-")
        sent.edits.append((key, token))
        sent.message.words = f"please {sent.message.text} {token}"
        self._note(f"{sent.author.name} edits {sent.message.text} to {token}")
        self._send(self._platform.edit(sent.message, sent.mention + sent.message.words, key))

    def delete(self) -> None:
        sent = self._drawn_message()
        if sent is None:
            return
        sent.is_deleted = True
        sent.message.words = ""
        self._note(f"{sent.author.name} deletes {sent.message.text}")
        self._send(self._platform.delete(sent.message, f"delete:{sent.message.ref}"))

    def start_afresh(self) -> None:
        self._command("new")

    def forget(self) -> None:
        self._command("forget", self._chance.random.choice((" yes", " me yes")))

    def _command(self, name: str, argument: str = "") -> None:
        if self.messages:
            chosen = self._chance.random.choice(self.messages)
            author = chosen.author.name.lower()
            place, words = chosen.message.address, f"{name}{argument}"
            said = self._write(ALICE if author == OTHER_BOT else author, words, words, self._mention, place)
            self.commands.append(Command(name, said))

    def press_stop(self) -> None:
        self._press("stop", lambda status: status.view.can_stop)

    def press_retry(self) -> None:
        self._press("retry", lambda status: status.view.state == "failed")

    def _press(self, action: Literal["stop", "retry"], is_offered: Callable[[RunStatus], bool]) -> None:
        """A user presses a button of a status message, sometimes twice."""
        statuses = [
            (message, content)
            for message in self._chat.messages.values()
            if message.shown and isinstance(content := message.shown[-1], RunStatus)
        ]
        offered = [pair for pair in statuses if is_offered(pair[1])]
        if offered:
            self._press_button(action, *self._chance.random.choice(offered))

    def _press_button(self, action: str, message: ChatMessage, status: RunStatus) -> None:
        self._note(f"bob presses {action} of {message.ref}")
        if action == "stop":
            self.stops.append(Stop(message.address, run_id=status.run_id))
        press = self._platform.press(message, status, action.capitalize(), BOB, self._new_key(action))
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
            self._write(BOB, words, words, self._mention, message.address)
            return
        self._note(f"bob chooses {options[at]!r} of {message.ref}")
        key = self._new_key("click")
        if options[at] in (APPROVE_ONCE, DENY) and self._chance.random.random() < 0.3:
            self._click(self._platform.react(message, "no" if is_refused else "yes", BOB, key))
        else:
            self._click(self._platform.press(message, content, options[at], BOB, key))


OPERATIONS: Mapping[str, Callable[[Users], None]] = {
    "remark": Users.remark,
    "edit": Users.edit,
    "delete": Users.delete,
    "new": Users.start_afresh,
    "forget": Users.forget,
    "stop button": Users.press_stop,
    "stop in words": Users.say_stop,
    "yes": Users.say_yes,
    "another bot": Users.talk_to_other_bot,
    "retry button": Users.press_retry,
}
"""What users do besides writing messages and stopping a run in words. They also answer each question and card."""
