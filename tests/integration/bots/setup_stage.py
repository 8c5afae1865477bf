"""A set-up stage: simulated services, the `.env` that leads to them, and the wizard in a terminal of 80 columns."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator
from tests.fakes.model_endpoint import ModelEndpoint, model_endpoint
from tests.integration.bots.test_cli import environment

ANSWER_SECONDS = 60.0
_UNSTABLE = (
    (re.compile(r"\x1b\]8;;https://api\.slack\.com/apps\?new_app=1&manifest_json=[^\x1b]+\x1b\\"), "<link>"),
    (re.compile(r"\x1b\]8;;\x1b\\"), "</link>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
)


@dataclass
class SetupStage:
    folder: Path
    slack: SlackSimulator
    discord: DiscordSimulator
    model: ModelEndpoint

    @property
    def env_file(self) -> Path:
        return self.folder / ".env"

    def posted(self) -> list[str]:
        """The texts of all messages in Slack's channels."""
        channels = self.slack.workspace.channels.values()
        return [message.text for one in channels for message in one.messages.values()]

    def services_gone(self) -> None:
        """Leads the settings to ports where nothing answers, as without a network."""
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", self.env_file.read_text())
        self.env_file.write_text(text)

    async def session(self, *turns: tuple[str, str], arguments: Sequence[str] = ()) -> str:
        """Runs `threadhand setup` and returns what the terminal showed.

        Each turn waits for the question to end with a text and types the answer; "^D" and "^C" are the keys.
        """
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bots", "setup", *arguments),
            cwd=self.folder,
            env={**environment(self.folder), "TERM": "xterm", "PYTHONUTF8": "1"},
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(child)
        screen = _Screen(parent)
        try:
            for question, answer in turns:
                await screen.wait_for(f"{question}: ")
                keys = {"^D": "\x04", "^C": "\x03"}.get(answer, f"{answer}\n")
                os.write(parent, keys.encode())
            await asyncio.wait_for(process.wait(), ANSWER_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            shown = screen.close()
        return f"{self._stable(shown)}exit code {process.returncode}\n"

    def _stable(self, text: str) -> str:
        text = text.replace("\r\n", "\n")
        for pattern, stable in _UNSTABLE:
            text = pattern.sub(stable, text)
        return text.replace(str(self.folder), "FOLDER")


def _own_terminal() -> None:
    """Makes the terminal the child's own, so that its keys become signals."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


_ASK_AND_COUNT = """
from bots.setup.dialog import Terminal
ended = 0
for _ in range({count}):
    try:
        Terminal().ask("Go on", is_secret={is_secret})
    except EOFError:
        ended += 1
print("ended", ended)
"""


async def interrupted_questions(count: int, *, is_secret: bool) -> int:
    """Asks questions in a terminal, types Ctrl-C the moment each is shown, and returns how many that ended."""
    parent, child = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _ASK_AND_COUNT.format(count=count, is_secret=is_secret)),
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(child)
    screen = _Screen(parent)
    try:
        for _ in range(count):
            await screen.wait_for("Go on: ")
            os.write(parent, b"\x03")
        await asyncio.wait_for(process.wait(), ANSWER_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        shown = screen.close()
    return int(shown.rpartition("ended ")[2])


class _Screen:
    """Reads what is written to the terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._shown = b""
        self._seen = 0
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            self._shown += os.read(self._descriptor, 1 << 16)
        except OSError:  # the other side is closed
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._changed.set()

    async def wait_for(self, text: str) -> None:
        """Waits until the output since the last wait ends with the text."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while not self._shown[self._seen :].decode(errors="replace").endswith(text):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"no {text!r} at the end of {self._shown.decode()}") from None
        self._seen = len(self._shown)

    def close(self) -> str:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.set_blocking(self._descriptor, False)
        try:
            while more := os.read(self._descriptor, 1 << 16):
                self._shown += more
        except OSError:
            pass
        os.close(self._descriptor)
        return self._shown.decode(errors="replace")


@asynccontextmanager
async def setup_stage(folder: Path) -> AsyncGenerator[SetupStage, None]:
    """Context manager: the services run inside the block."""
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(SlackSimulator())
        discord = await stack.enter_async_context(DiscordSimulator())
        model = await stack.enter_async_context(model_endpoint())
        stage = SetupStage(folder, slack, discord, model)
        stage.env_file.write_text(
            f"# mine\nFOREIGN=1\nTHREADHAND_SLACK_API_URL={slack.api_url.rstrip('/')}\n"
            f"THREADHAND_DISCORD_API_URL={discord.api_url}\nTHREADHAND_DATA_DIR={folder}/data\n"
            "THREADHAND_SANDBOX=none\nTHREADHAND_HTTP_PORT=0\n"
        )
        yield stage
