"""Runs end-to-end tests with simulated platforms, a scripted model, and the program as a child process."""

import asyncio
import re
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bots.demo.scripted_model import serve_scenario
from bots.demo.thread_reader import buttons_of, format_transcript, messages_of, text_of
from bots.inbound.actions import NOT_STORED
from bots.slack.install.manifest import build_manifest
from core.domain.json import JsonObject
from simulator.discord.server import DiscordSimulator
from simulator.model.scenario import load_scenario
from simulator.model.server import ScriptedServer
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings, read_manifest
from simulator.view import Button, PlatformView, SeenMessage, SentFile
from tests.chaos.program import Program
from tests.databases import empty_sqlite_file
from tests.support.platforms import environment_of

PlatformName = Literal["slack", "discord"]
PATIENCE_SECONDS = 30.0
PERSON = "alice"
MODEL = "threadhand/scripted"
RETRY_SECONDS = (0.1, 5.0, 20.0)
"""Delays before redeliveries. The last are long enough for the program to start on a busy machine."""


@dataclass
class Stage:
    """A simulated platform with one person, a scripted model, and the program with its data."""

    platform: SlackSimulator | DiscordSimulator
    script: ScriptedServer
    program: Program
    database_path: Path
    thread_id: str = ""
    shown_before: set[str] = field(default_factory=set[str])

    @property
    def name(self) -> PlatformName:
        return "slack" if isinstance(self.platform, SlackSimulator) else "discord"

    @property
    def channel_id(self) -> str:
        return next(one.channel_id for one in self.view().channels if not one.is_direct)

    def view(self) -> PlatformView:
        return self.platform.view()

    def messages(self) -> tuple[SeenMessage, ...]:
        """The messages of the test's thread."""
        return messages_of(self.view(), self.thread_id)

    def ours(self) -> tuple[SeenMessage, ...]:
        """The agent's public messages in the thread."""
        return tuple(one for one in self.messages() if one.is_bot and one.visible_to is None)

    def shows(self, text: str) -> bool:
        """Whether the text is shown in the thread, publicly or to one person."""
        beside = [one for channel in self.view().channels for one in channel.messages]
        return any(text in text_of(one) for one in (*self.messages(), *beside) if one.is_bot)

    def button(self, label: str) -> tuple[SeenMessage, Button] | None:
        """Returns the newest button with this label in the thread, and its message."""
        for message in reversed(self.messages()):
            for one in buttons_of(message):
                if one.label == label and not one.is_disabled:
                    return message, one
        return None

    async def until(self, holds: Callable[[], object], what: str, *, seconds: float = 0.0) -> None:
        """Waits until `holds` returns a true value, for `seconds` or, if 0, for the stage's default timeout.

        Raises AssertionError with a report.
        """
        seconds = seconds or PATIENCE_SECONDS
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise AssertionError(f"within {seconds:.0f} s: {what}\n{self.report()}") from None

    async def connected(self) -> None:
        """Waits until the program is connected and, for Discord, has stored its channel cursors."""
        await self.until(self._is_connected, "the program connects")

    def _is_connected(self) -> bool:
        if isinstance(self.platform, SlackSimulator) and self.platform.http_events is not None:
            return "slack: connected as" in self.program.log()
        is_noted = self.name == "slack" or self.rows("SELECT scope FROM inbound_cursor")
        return self.view().is_bot_connected and bool(is_noted)

    async def say(self, text: str, *, files: tuple[SentFile, ...] = ()) -> str:
        """Sends a message. The first one mentions the bot; later ones continue the thread."""
        if self.thread_id:
            return await self.platform.say(PERSON, self.channel_id, text, thread_id=self.thread_id, files=files)
        said = await self.platform.say(PERSON, self.channel_id, f"@{self.view().bot_name} {text}", files=files)
        self.thread_id = said
        return said

    async def say_until(self, text: str, answers: tuple[str, ...], *, files: tuple[SentFile, ...] = ()) -> None:
        """Mentions the bot with this text until one of the answers is shown, at most three times, as a person does."""

        async def mention(seconds: float) -> None:
            await self.connected()
            await self.say(f"@{self.view().bot_name} {text}", files=files)
            await self.until(lambda: any(map(self.shows, answers)), text, seconds=seconds)

        for _ in range(2):
            with suppress(AssertionError):
                return await mention(8.0)
        return await mention(2 * PATIENCE_SECONDS)

    async def press(self, label: str, person: str = PERSON) -> None:
        """Presses the button, and again if the platform says that the app did not respond, as a person does."""
        while True:
            await self.until(lambda: self.button(label), f"there is a button {label}")
            found = self.button(label)
            if found is None:
                continue
            message, button = found
            try:
                await self.platform.press(person, self.channel_id, message.message_id, button.control_id)
                return
            except (TimeoutError, ValueError):
                await self.connected()
                await asyncio.sleep(1.0)
                if self.button(label) is None:
                    return

    async def choose(self, label: str) -> None:
        """Presses the button until it is gone: a click that cannot be stored is refused, and a person tries again."""
        while True:
            refusals = self._count_refusals()
            await self.press(label)
            with suppress(AssertionError):
                await self.until(
                    lambda known=refusals: self.button(label) is None or self._count_refusals() > known,
                    f"the button {label} does its work",
                )
            if self.button(label) is None:
                return

    def _count_refusals(self) -> int:
        return sum(NOT_STORED in text_of(one) for one in self.messages())

    async def details(self) -> str:
        """Presses Details below the newest status and returns what only the person then sees."""
        seen = {one.message_id for one in self.messages()}

        def shown() -> list[SeenMessage]:
            return [one for one in self.messages() if one.message_id not in seen]

        await self.press("Details")
        await self.until(shown, "the details are shown")
        (told,) = shown()
        assert told.visible_to == PERSON
        return text_of(told)

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Returns the current rows of a query, or none if the database does not exist yet."""
        if not self.database_path.exists():
            return []
        try:
            with closing(sqlite3.connect(f"file:{self.database_path}?mode=ro", uri=True, timeout=30)) as opened:
                return opened.execute(query, values).fetchall()
        except sqlite3.OperationalError:
            return []

    @property
    def http_port(self) -> int:
        """The HTTP port since the program's last start, 0 if it is not known yet."""
        said = re.findall(r"listens on 127.0.0.1 port (\d+)", self.program.log())
        return int(said[-1]) if said else 0

    def threads(self) -> set[str]:
        return {one.thread_id for channel in self.view().channels for one in channel.threads}

    def runs(self) -> list[str]:
        """The states of all runs, oldest first."""
        return [str(row[0]) for row in self.rows("SELECT status FROM run ORDER BY run_id")]

    def is_settled(self) -> bool:
        """Whether every run has ended and all its messages have been delivered."""
        runs = self.runs()
        is_open = self.rows("SELECT run_id FROM rendering WHERE is_open")
        waiting = self.rows("SELECT input_id FROM thread_input WHERE taken_by IS NULL")
        return not {"queued", "running"} & set(runs) and not is_open and not waiting

    async def settled(self, runs: int) -> None:
        await self.until(lambda: len(self.runs()) >= runs and self.is_settled(), f"{runs} runs are told to the end")

    def last_request(self) -> JsonObject:
        """The last request that the model received."""
        return self.script.requests[-1]

    def workspace_file(self, name: str) -> str:
        """Returns the text of a file in the thread's workspace, or "" if it does not exist."""
        found = list((self.program.folder / "data" / "sandboxes").glob(f"**/workspace/{name}"))
        return found[0].read_text() if found else ""

    def report(self) -> str:
        """Returns a report for debugging a failed test."""
        return "\n".join(
            (
                "--- thread",
                format_transcript(self.messages()),
                f"--- runs {self.runs()}, model's problems {self.script.problems}",
                *map(str, self.rows("SELECT run_id, slot, ordinal, state, message_ref FROM delivery")),
                *map(str, self.rows("SELECT run_id, is_open, worker_id FROM rendering")),
                f"--- program\n{self.program.log()[-6000:]}",
            )
        )


@asynccontextmanager
async def staged(
    platform: PlatformName,
    scenario: str,
    *,
    sandbox: str = "unsafe-process",
    events_port: str = "",
    is_first_start: bool = False,
    **settings: str,
) -> AsyncGenerator[Stage, None]:
    """Context manager: yields a stage whose program is not started yet. Ends all processes at the end.

    With `events_port`, the program listens on that port, and Slack sends signed requests to it. Only with
    `is_first_start` does the program make its database.
    """
    async with AsyncExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="threadhand-chaos-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        (folder / "data").mkdir(mode=0o711)
        database_path = folder / "data" / "threadhand.db"
        if not is_first_start:
            database_path.touch(mode=0o600)
            database_path.write_bytes(empty_sqlite_file())
        script = await stack.enter_async_context(serve_scenario(load_scenario(scenario)))
        simulated = await stack.enter_async_context(_platform(platform, events_port))
        program = Program(folder, _settings(simulated, script, folder, sandbox))
        if events_port:
            program.change(http_port=events_port, slack_app_token="")
        program.change(**settings)
        stack.callback(program.kill)
        yield Stage(platform=simulated, script=script, program=program, database_path=database_path)


def _platform(name: PlatformName, events_port: str) -> SlackSimulator | DiscordSimulator:
    if name == "slack":
        url = f"http://127.0.0.1:{events_port}/slack/events" if events_port else None
        return SlackSimulator(
            settings=SlackSettings(
                people=(PERSON, "bob", "carol"),
                retry_seconds=RETRY_SECONDS,
                events_url=url,
                **read_manifest(build_manifest()),
            )
        )
    return DiscordSimulator(people=(PERSON, "bob", "carol"))


def _settings(
    platform: SlackSimulator | DiscordSimulator, script: ScriptedServer, folder: Path, sandbox: str
) -> dict[str, str]:
    return {
        **environment_of(platform),
        "THREADHAND_ALLOWED_WORKSPACES": "*",
        "THREADHAND_DATA_DIR": str(folder / "data"),
        "THREADHAND_HTTP_PORT": "0",
        "THREADHAND_STATUS_AFTER_SECONDS": "0",  # each run has a status, however fast the machine is
        "THREADHAND_SANDBOX": sandbox,
        "THREADHAND_MODEL": MODEL,
        "THREADHAND_LLM_BASE_URL": script.base_url,
        "THREADHAND_LLM_API_KEY": "scripted",
    }
