"""`threadhand chat`: a conversation with the agent in the terminal, with the configured model and the real sandbox."""

import asyncio
import getpass
import mimetypes
import shlex
import signal
import sys
import tempfile
import termios
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from pydantic import SecretStr

from bots.bootstrap.model_clients import without_models_that_lack_a_key
from bots.bootstrap.program import run_program
from bots.delivery.outbox import require_workspace_file
from bots.delivery.run_view import RunView, apply_event
from bots.inbound.commands.short_replies import read_yes_no_stop
from bots.settings import Settings
from bots.web.deps import WebDeps
from bots.web.upload_spool import UploadTooLarge, store_upload
from core.domain.actions import AskAnswered, IncomingMessage, StoredAction
from core.domain.errors import ConfigurationError, RunError, ToolError
from core.domain.events import (
    AgentEvent,
    ApprovalAsked,
    ResponseStarted,
    RunFinished,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from core.domain.ids import new_id
from core.domain.outside_text import safe_file_name, without_control_characters
from core.domain.threads import Address, Ask, IncomingFile, Person, Reply, Thread
from core.run.event_replay import follow_events
from core.tasks import cancel, spawn, spawn_awaited, wait_for_first

HELP = "/attach FILE sends a file along, /new begins another conversation, /quit leaves. Ctrl-C stops the agent."
PIECE_BYTES = 256 * 1024
PASTE_ENDS = "\x1b[?2004l"
"""Ends the mode in which the terminal marks what is pasted. The line editor begins that mode with each prompt."""


async def run_chat(settings: Settings) -> int:
    """Talks until the user leaves. Only files that the agent attaches are kept, in the current folder.

    Raises ConfigurationError if there is no model, or the program cannot start."""
    settings, problems = without_models_that_lack_a_key(settings)
    if not settings.model:
        raise ConfigurationError("\n".join(problems) or "Set THREADHAND_MODEL and the key of its provider.")
    with _own_folder() as folder:
        # this program serves only this terminal; others may run at the same time
        changes: dict[str, object] = {
            **dict.fromkeys(("slack_bot_token", "slack_app_token", "slack_signing_secret"), SecretStr("")),
            **dict.fromkeys(("slack_client_secret", "discord_token", "api_token"), SecretStr("")),
            **dict.fromkeys(("slack_client_id", "database_url", "redis_url", "public_url", "modal_worker_app"), ""),
            "data_dir": folder,
            "http_host": "127.0.0.1",
            "http_port": 0,
            "drain_seconds": 0.0,
        }
        async with run_program(settings.model_copy(update=changes), is_temporary=True) as program:
            chat = _Chat(program.api)
            for warning in program.warnings:
                chat.write(f"{warning}\n")
            chat.write(f"Model {settings.model}, sandbox {program.sandbox}. {HELP}\n")
            with _kept_terminal():
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, chat.interrupt)
                talk = spawn_awaited(chat.talk(), name="chat")
                try:
                    await wait_for_first(chat.left)
                finally:
                    await cancel(talk)
            if not talk.cancelled():
                talk.result()
    return 0


@contextmanager
def _own_folder() -> Generator[Path, None, None]:
    with tempfile.TemporaryDirectory(prefix="threadhand-chat-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # the user of the sandboxes passes through it
        yield Path(name)


@contextmanager
def _kept_terminal() -> Generator[None, None, None]:
    """Restores the terminal at the end, because the line editor may still wait for a line then."""
    if not sys.stdin.isatty():
        yield
        return
    with suppress(ImportError):
        import_module("readline")  # `input` edits lines with it
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        sys.stdout.write(f"{PASTE_ENDS}\n")


class _Chat:
    """The conversation: its thread, the run that goes on, and what was typed and shown."""

    def __init__(self, api: WebDeps) -> None:
        self._api = api
        self._person = Person(person_id="terminal", name=getpass.getuser())
        self._thread: Thread | None = None
        self._attached: list[IncomingFile] = []
        self._run_id = ""
        self._stopping = asyncio.Event()
        self._line: asyncio.Future[str | None] | None = None
        self._streamed = ""
        self._is_line_open = False
        self.left = asyncio.Event()
        """Set when the conversation is over."""

    def write(self, text: str) -> None:
        """Shows text, which may be the model's. Nothing else writes to the terminal."""
        shown = without_control_characters(text)
        self._is_line_open = not shown.endswith("\n") if shown else self._is_line_open
        sys.stdout.write(shown.encode(errors="replace").decode())
        sys.stdout.flush()

    def write_line(self, text: str) -> None:
        self.write("\n" * self._is_line_open + text + "\n")

    def interrupt(self) -> None:
        """Stops the run. Leaves if there is none, or if it was stopped already."""
        if not self._run_id or self._stopping.is_set():
            self.left.set()
            return
        self._stopping.set()
        self.write_line("Stopping. Ctrl-C again leaves.")
        spawn(self._stop(self._run_id), name="stop")

    async def _stop(self, run_id: str) -> None:
        await self._api.stop(run_id)

    async def talk(self) -> None:
        """Reads requests and shows what the agent does, until the user leaves or the input ends."""
        try:
            while (text := await self._read()) is not None:
                match text.strip().split(maxsplit=1):
                    case []:
                        continue
                    case ["/quit" | "/exit"]:
                        return
                    case ["/help"]:
                        self.write_line(HELP)
                    case ["/new"]:
                        self._thread = None
                        self.write_line("A new conversation.")
                    case ["/attach", path]:
                        await self._attach(_as_files(path) or [Path(path)])
                    case _ if files := _as_files(text):  # terminals type the path of a file that is dropped on them
                        await self._attach(files)
                    case _:
                        await self._request(text)
        finally:
            self.left.set()

    async def _read(self) -> str | None:
        """Returns a line, or several that were pasted together. None: the input has ended."""
        if self._line is None:
            self.write("\n" * self._is_line_open)
            self._line = asyncio.get_running_loop().create_future()
            threading.Thread(target=_read_line, args=(self._line,), daemon=True).start()
            self._is_line_open = True
        else:  # a question that was withdrawn left its prompt open
            self.write("> ")
        line = await asyncio.shield(self._line)
        self._line, self._is_line_open = None, False
        return line

    async def _attach(self, files: list[Path]) -> None:
        for path in files:
            try:
                stored, size = await store_upload(
                    self._api.spool_folder, _pieces(path), bytes_max=self._api.upload_bytes_max
                )
            except (OSError, UploadTooLarge) as error:
                why = getattr(error, "strerror", "") or f"it has more than {self._api.upload_bytes_max // 2**20} MB"
                self.write_line(f"{path} cannot be attached: {why}.")
                continue
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            self._attached.append(IncomingFile(file_ref=stored, name=path.name, mime_type=kind, size_bytes=size))
            self.write_line(f"{path.name} goes with your next message.")

    async def _request(self, text: str) -> None:
        if self._thread is None:
            address = Address(platform="api", workspace_id="api", channel_id="api", thread_key=new_id())
            self._thread = await self._api.conversations.create(address)
        ask = await self._open_ask(self._thread)
        files, self._attached = tuple(self._attached), []
        message = IncomingMessage(
            address=self._thread.address,
            dedupe_key=(key := f"api:{new_id()}"),
            message_ref=key,
            person=self._person,
            text=_meant_option(text, ask) or text,
            sent_at=datetime.now(UTC),
            files=files,
        )
        run_id = await self._send(message)
        if run_id is None:
            return
        self._run_id = run_id
        self._stopping.clear()
        view, thread = RunView(), self._thread
        events = follow_events(run_id, None, conversations=self._api.conversations, bus=self._api.bus)
        async with aclosing(events):
            async for group in events:
                for one in group:
                    view = apply_event(view, one.event)
                    await self._show(one.event, view, thread)
        self._run_id = ""

    async def _send(self, action: StoredAction) -> str | None:
        outcome = await self._api.receive(action)
        if outcome.notice:
            self.write_line(outcome.notice)
        return outcome.run_id

    async def _show(self, event: AgentEvent, view: RunView, thread: Thread) -> None:
        match event:
            case ResponseStarted():
                self.write("\n" * self._is_line_open)
                self._streamed = ""
            case TextStreamed(text=text):
                self._streamed += text
                self.write(text)
            case ToolStarted(call_id=call_id, title=title) if any(one.call_id == call_id for one in view.tasks):
                self.write_line(f"- {title}")
            case ToolFinished(call_id=call_id) if event.outcome != "completed":
                for task in view.tasks:
                    if task.call_id == call_id:
                        error = f": {task.detail}" if task.exit_code is None else ""
                        self.write_line(f"  {task.line}{error}")
            case ApprovalAsked():
                await self._approve(thread)
            case RunFinished(reply=Reply() as reply):
                whole = reply.whole_text
                # what the model has streamed is there already
                rest = whole.removeprefix(self._streamed.strip()) if self._streamed.strip() else whole
                self.write(rest)
                for number, option in enumerate(reply.options, 1):
                    self.write_line(f"  {number}  {option}")
                for path in reply.attachments:
                    await self._save(path, thread)
            case _:
                pass
        if not view.can_stop:
            self.write("\n" * self._is_line_open + (f"{view.message}\n" if view.message else ""))

    async def _save(self, attachment: str, thread: Thread) -> None:
        if "://" in attachment:
            self.write_line(attachment)
            return
        try:
            sandbox, path, size = await require_workspace_file(attachment, thread.thread_id, self._api.sandboxes)
            content = sandbox.files.read(path, length=size)
            saved = await _write_new(safe_file_name(path), content)
        except (RunError, ToolError, OSError) as error:
            self.write_line(f"{attachment} cannot be saved: {error}")
            return
        self.write_line(f"Saved {saved}.")

    async def _approve(self, thread: Thread) -> None:
        """Asks the user about calls that need an approval, unless the run is stopped meanwhile."""
        ask = await self._open_ask(thread)
        if ask is None:
            return
        options = "".join(f"\n  {number}  {option}" for number, option in enumerate(ask.choices, 1))
        self.write_line(f"{ask.text}{options}\nGive a number, yes or no, or say why not.")
        answer = spawn(self._read(), name="approval")
        stopped = spawn(self._stopping.wait(), name="stopped")
        await asyncio.wait({answer, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await cancel(stopped)
        if not answer.done():
            await cancel(answer)
        elif (text := answer.result()) is None:
            self.left.set()
        else:
            option = _meant_option(text, ask)
            await self._send(
                AskAnswered(
                    address=thread.address,
                    dedupe_key=f"api:{new_id()}",
                    person=self._person,
                    ask_id=ask.ask_id,
                    text=text.strip() or "no",
                    option=ask.choices.index(option) if option else None,
                    sent_at=datetime.now(UTC),
                )
            )

    async def _open_ask(self, thread: Thread) -> Ask | None:
        snapshot = await self._api.conversations.snapshot(thread.thread_id)
        return snapshot.open_ask if snapshot else None


def _meant_option(text: str, ask: Ask | None) -> str | None:
    """Returns the option that the text names by its number or its words, or as a yes or no to an approval."""
    choices = ask.choices if ask else ()
    if ask and ask.kind == "approval" and (word := read_yes_no_stop(text)) in ("yes", "no"):
        return choices[0 if word == "yes" else -1]
    wanted = text.strip().casefold()
    if wanted.isdecimal() and 1 <= int(wanted[:4]) <= len(choices):
        return choices[int(wanted[:4]) - 1]
    return next((one for one in choices if one.casefold() == wanted), None)


def _as_files(text: str) -> list[Path]:
    """Returns the files whose paths make up the whole text, quoted as in a shell, or nothing."""
    try:
        paths = [Path(part.removeprefix("file://")).expanduser() for part in shlex.split(text)]
        return paths if all(path.is_absolute() and path.is_file() for path in paths) else []
    except (ValueError, OSError, RuntimeError):
        return []


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece
    finally:
        file.close()


async def _write_new(name: str, pieces: AsyncIterator[bytes]) -> str:
    """Writes the file to the current folder, under another name if that one is taken. Returns the name."""
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    tried, number = name, 1
    while True:
        try:
            file = await asyncio.to_thread(Path(tried).open, "xb")
            break
        except FileExistsError:
            number += 1
            tried = f"{stem}-{number}{dot}{suffix}"
    with file:
        async for piece in pieces:
            await asyncio.to_thread(file.write, piece)
    return tried


def _read_line(read: "asyncio.Future[str | None]") -> None:
    """Reads a line in a thread that nobody waits for, because a read from the terminal cannot be cancelled."""
    try:
        line = input("> ")
    except (EOFError, OSError, ValueError):
        line = None
    with suppress(RuntimeError):  # the loop has ended
        read.get_loop().call_soon_threadsafe(lambda: read.done() or read.set_result(line))
