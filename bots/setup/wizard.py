"""`threadhand setup`: asks for keys section by section, tests them and writes them to `.env`."""

import getpass
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography.fernet import Fernet

from bots.settings import PREFIX, Settings, load_process_settings, with_changes
from bots.settings import env_file as env
from bots.setup import probes as probes
from core.domain.errors import ConfigurationError

GENERATE = "generate"


class Dialog(Protocol):
    """Asks the user the questions of `threadhand setup` and shows messages."""

    def say(self, text: str) -> None: ...

    def ask(self, question: str, *, is_secret: bool = False) -> str:
        """Returns the answer without surrounding spaces. An empty answer skips the question.

        Raises EOFError at the end of the input.
        """
        ...


class Terminal:
    """Asks the questions in the terminal. Does not echo secrets."""

    def say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")

    def ask(self, question: str, *, is_secret: bool = False) -> str:
        prompt = f"{question}: "
        return (getpass.getpass(prompt) if is_secret else input(prompt)).strip()


@dataclass(frozen=True, slots=True)
class Question:
    variable: str
    text: str
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A group of related questions. `probe` tests the answers before they are saved."""

    title: str
    explanation: str
    questions: tuple[Question, ...]
    probe: probes.Probe


@dataclass(frozen=True, slots=True)
class SectionChoice:
    """A choice between sections. `usual` returns the name of the default section."""

    question: str
    modules: Mapping[str, Section]
    usual: Callable[[Settings], str]


_APP_TOKEN = Question("THREADHAND_SLACK_APP_TOKEN", "App token (xapp-...)", is_secret=True)
_SIGNING_SECRET = Question("THREADHAND_SLACK_SIGNING_SECRET", "Signing secret", is_secret=True)
_ONE_WORKSPACE = Section(
    "Slack",
    "`threadhand slack manifest` prints the app manifest. Give the app token for Socket Mode (no public address"
    " needed), or the signing secret for HTTP mode.",
    (
        Question("THREADHAND_SLACK_BOT_TOKEN", "Bot token (xoxb-...)", is_secret=True),
        _APP_TOKEN,
        _SIGNING_SECRET,
    ),
    probes.probe_slack,
)
_SEVERAL_WORKSPACES = Section(
    "Slack for several workspaces",
    "Each workspace installs the bot at your public address, and gets a token of its own, which is stored encrypted."
    " `threadhand slack manifest --public-url https://your.address` prints the app manifest. Give the signing secret"
    " for HTTP mode, or the app token for Socket Mode.",
    (
        Question("THREADHAND_SLACK_CLIENT_ID", "Client id"),
        Question("THREADHAND_SLACK_CLIENT_SECRET", "Client secret", is_secret=True),
        Question("THREADHAND_PUBLIC_URL", "Public address (https://...)"),
        Question(
            "THREADHAND_ENCRYPTION_KEYS",
            f"Keys that tokens are encrypted with ({GENERATE}: makes one, and keeps those that are there)",
            is_secret=True,
        ),
        _SIGNING_SECRET,
        _APP_TOKEN,
    ),
    probes.probe_slack_app,
)


SECTIONS: tuple[Section | SectionChoice, ...] = (
    Section(
        "Language model",
        "Any model that litellm knows, or an OpenAI-compatible endpoint.",
        (
            Question("THREADHAND_MODEL", "Model, for example anthropic/claude-sonnet-4-5"),
            Question("THREADHAND_LLM_BASE_URL", "Base URL of the endpoint (Enter: the provider's)"),
            Question("THREADHAND_LLM_API_KEY", "API key", is_secret=True),
        ),
        probes.probe_model,
    ),
    SectionChoice(
        "Slack: one workspace, or several that install the bot themselves",
        {"one": _ONE_WORKSPACE, "several": _SEVERAL_WORKSPACES},
        lambda settings: "several" if settings.slack_client_id else "one",
    ),
    Section(
        "Discord",
        "Make a bot at discord.com/developers and switch on its Message Content intent.",
        (Question("THREADHAND_DISCORD_TOKEN", "Bot token", is_secret=True),),
        probes.probe_discord,
    ),
    Section(
        "Access",
        "Nobody may talk to the agent until you say who: ids separated by commas, or * for all. Every list that is"
        " set must fit.",
        (
            Question("THREADHAND_ALLOWED_WORKSPACES", "Workspaces and servers"),
            Question("THREADHAND_ALLOWED_CHANNELS", "Channels"),
            Question("THREADHAND_ALLOWED_USERS", "People"),
        ),
        probes.accept_untested,
    ),
    Section(
        "HTTP API",
        "Without a token it answers programs on this machine only.",
        (Question("THREADHAND_API_TOKEN", f"Token ({GENERATE}: makes one)", is_secret=True),),
        probes.accept_untested,
    ),
)


async def run_wizard(dialog: Dialog, env_file: Path) -> None:
    """Asks the questions of all sections.

    Saves each section as soon as its keys work, so that an interrupted setup can be continued later.
    """
    dialog.say(f"Settings go to {env_file}. Enter keeps what is there; Ctrl-D ends.")
    try:
        for step in SECTIONS:
            module = _chosen(dialog, step, env_file) if isinstance(step, SectionChoice) else step
            await _set_up_module(dialog, module, env_file)
    except EOFError:
        dialog.say("\nEnded here; run `threadhand setup` again to go on.")
        return
    dialog.say("\nDone. `threadhand doctor` checks the whole, `threadhand up` starts it.")


def _chosen(dialog: Dialog, choice: SectionChoice, env_file: Path) -> Section:
    usual = choice.usual(load_process_settings(env_file))
    names = ", ".join(choice.modules)
    while True:
        answer = dialog.ask(f"\n{choice.question} ({names}; Enter: {usual})").lower() or usual
        if answer in choice.modules:
            return choice.modules[answer]
        dialog.say(f"One of these, please: {names}.")


async def _set_up_module(dialog: Dialog, module: Section, env_file: Path) -> None:
    settings = load_process_settings(env_file)
    dialog.say(f"\n{module.title}\n{module.explanation}")
    while answers := _answers(dialog, module, settings):
        verdict = await _verdict(module, settings, answers)
        if verdict.works:
            env.write_env_file(env_file, answers)
            dialog.say(f"{verdict.text} Saved.")
            return
        dialog.say(f"{verdict.text} Not saved; once more, or Enter to leave it out.")


def _new_keys(settings: Settings) -> str:
    """Returns a new encryption key followed by the existing keys, because stored tokens may be encrypted with them."""
    return ",".join((Fernet.generate_key().decode(), *settings.token_keys))


_GENERATED: Mapping[str, Callable[[Settings], str]] = {
    "THREADHAND_API_TOKEN": lambda _: secrets.token_urlsafe(32),
    "THREADHAND_ENCRYPTION_KEYS": _new_keys,
}


def _answers(dialog: Dialog, module: Section, settings: Settings) -> dict[str, str]:
    answers: dict[str, str] = {}
    for question in module.questions:
        is_set = bool(getattr(settings, question.variable.removeprefix(PREFIX).lower()))
        text = f"{question.text} [set]" if is_set else question.text
        answer = dialog.ask(text, is_secret=question.is_secret)
        if answer == GENERATE and question.variable in _GENERATED:
            answer = _GENERATED[question.variable](settings)
        if answer:
            answers[question.variable] = answer
    return answers


async def _verdict(
    module: Section, settings: Settings, answers: dict[str, str]
) -> probes.ProbeVerdict:
    try:
        return await module.probe(with_changes(settings, answers))
    except ConfigurationError as error:
        return probes.ProbeVerdict(False, str(error))
