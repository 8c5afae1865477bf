"""A set-up stage: simulated services, the `.env` that leads to them, and the wizard in a terminal of 80 columns."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator
from tests.fakes.model_endpoint import ModelEndpoint, model_endpoint
from tests.integration.bots.terminal import play_in_terminal
from tests.integration.bots.test_cli import environment

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

    async def session(self, *turns: tuple[str, str], arguments: Sequence[str] = ()) -> str:
        """Runs `threadhand setup` and returns what the terminal showed. See `play_in_terminal`."""
        asked = [(f"{question}: ", answer) for question, answer in turns]
        command = ("-m", "bots", "setup", *arguments)
        shown, code = await play_in_terminal(command, asked, folder=self.folder, environ=environment(self.folder))
        return f"{self._stable(shown)}exit code {code}\n"

    def _stable(self, text: str) -> str:
        text = text.replace("\r\n", "\n")
        for pattern, stable in _UNSTABLE:
            text = pattern.sub(stable, text)
        return text.replace(str(self.folder), "FOLDER")


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
