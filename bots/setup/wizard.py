"""`threadhand setup`: asks for keys section by section, tries each, and writes them to `.env`."""

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import yaml
from cryptography.fernet import Fernet

from bots.bootstrap.model_clients import load_model_specs
from bots.settings import PREFIX, Settings, load_process_settings, with_changes
from bots.settings import env_file as env
from bots.settings.access import ANYONE, CHANNEL_ID, USER_ID, WORKSPACE_ID
from bots.setup.dialog import Choice, Dialog, pick, recognise_keys
from bots.setup.directory import load_directory, post_test_message
from bots.setup.doctor import check_settings
from bots.setup.findings import Finding, failures
from bots.setup.model_checks import check_models, list_models
from bots.setup.service_checks import (
    DISCORD_APPS,
    SLACK_APPS,
    ServiceClient,
    check_discord,
    check_slack,
    discord_invite,
    open_service_client,
)
from bots.slack.install.manifest import build_manifest, build_manifest_yaml
from core.domain.errors import ConfigurationError

GENERATE = "generate"
SKIP = "skip"
Answers = dict[str, str]
Check = Callable[[ServiceClient, Settings], Awaitable[tuple[Finding, ...]]]

PROVIDER_PREFIXES = {
    "ANTHROPIC_API_KEY": "anthropic/",
    "OPENAI_API_KEY": "openai/",
    "OPENROUTER_API_KEY": "openrouter/",
    "GROQ_API_KEY": "groq/",
    "XAI_API_KEY": "xai/",
}
# shorter numbers are places in the list
_NUMBER = r"\d{15,20}"
ID_SHAPES = {
    "WORKSPACES": rf"{ANYONE}|{WORKSPACE_ID}|{_NUMBER}",
    "CHANNELS": rf"{ANYONE}|{CHANNEL_ID}|{_NUMBER}",
    "USERS": rf"{ANYONE}|{USER_ID}|{_NUMBER}",
    "ADMINS": rf"{USER_ID}|{_NUMBER}",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A group of questions that are saved together once `check` finds no failure."""

    title: str
    is_done: Callable[[Settings], bool]
    ask: Callable[["Wizard", Settings], Awaitable[Answers]]
    check: Check


class Wizard:
    """Holds the tokens that were pasted before their question came."""

    def __init__(self, dialog: Dialog, env_file: Path, client: ServiceClient) -> None:
        self._dialog = dialog
        self._env_file = env_file
        self.client = client
        self._pasted: Answers = {}

    async def run(self) -> int | None:
        """Asks the questions of all sections. Returns the exit code, or None if the program is to start now.

        Saves each section as soon as its keys work, so that an interrupted setup can be taken up again.
        """
        self.say(f"Settings go to {self._env_file}. Enter keeps what is there; Ctrl-D leaves.")
        title = ""
        try:
            for section in SECTIONS:
                title = section.title
                await self._run_section(section)
            title = "the last check"
            return await self._finish()
        except EOFError:
            self.say(f"\nLeft at {title}. `threadhand setup` goes on there.")
            return 1

    def say(self, text: str) -> None:
        self._dialog.say(text)

    def settings(self) -> Settings:
        return load_process_settings(self._env_file)

    def ask(self, variable: str, text: str, *, is_secret: bool = False) -> str:
        """Asks for the value of a variable. Keys of other variables in the answer are kept for their questions."""
        if variable in self._pasted:
            self.say(f"{text}: pasted before.")
            return self._pasted.pop(variable)
        while True:
            answer = self._dialog.ask(text, is_secret=is_secret)
            keys = recognise_keys(answer)
            own = keys.pop(variable, "")
            self._pasted.update(keys)
            if own or not keys:
                return own or answer
            self.say(f"That is for {', '.join(keys)}: kept.")
            if variable in self._pasted:
                return self._pasted.pop(variable)

    def confirm(self, question: str, *, is_yes_usual: bool = False) -> bool:
        answer = self._dialog.ask(f"{question} ({'Y/n' if is_yes_usual else 'y/N'})").lower()
        return answer.startswith("y") or (is_yes_usual and not answer)

    def pick(
        self, question: str, choices: list[Choice], *, id_shape: str = "", is_single: bool = False
    ) -> list[str] | None:
        return pick(self._dialog, question, choices, id_shape=id_shape, is_single=is_single)

    def take_pasted(self, names: Mapping[str, str]) -> Answers:
        """Returns the pasted keys of these variables and forgets them."""
        return {name: self._pasted.pop(name) for name in names if name in self._pasted}

    def copy(self, text: str) -> None:
        self._dialog.copy(text)

    async def _run_section(self, section: Section) -> None:
        settings = self.settings()
        self.say(f"\n{section.title}")
        if section.is_done(settings) and not self.confirm("It is set up. Change it?"):
            return
        while True:
            try:
                asked = await section.ask(self, settings)
            except ConfigurationError as error:
                self.say(f"{error}")
                continue
            answers = {name: text for name, text in asked.items() if text}
            if not answers or await self._try_and_save(section.check, settings, answers):
                return
            if not await self._wants_again(section.check, settings, answers):
                return

    async def _wants_again(self, check: Check, settings: Settings, answers: Answers) -> bool:
        """Whether the questions are to be asked again. Tries the same answers as often as the user wants."""
        while True:
            question = f"Enter tries again, `new` asks again, `{SKIP}` leaves it out"
            match self._dialog.ask(question).lower():
                case "":
                    if await self._try_and_save(check, settings, answers):
                        return False
                case "new":
                    return True
                case _:
                    return False

    async def _try_and_save(self, check: Check, settings: Settings, answers: Answers) -> bool:
        try:
            found = await check(self.client, with_changes(settings, answers))
        except ConfigurationError as error:
            self.say(f"Not saved. {error}")
            return False
        failed = failures(found)
        for finding in failed:
            self.say(f"{finding.subject}: {finding.fact} {finding.remedy}")
        if any(not finding.is_untested for finding in failed):
            self.say("Not saved.")
            return False
        for finding in found:
            if finding.state == "ok":
                self.say(f"{finding.subject}: {finding.fact}")
        env.write_env_file(self._env_file, answers)
        self.say("Saved, not tested." if failed else "Saved.")
        return True

    async def _finish(self) -> int | None:
        self.say("\nThe last check")
        settings = self.settings()
        if not report(self._dialog, await check_settings(settings)):
            return 1
        await self._send_test_message(settings)
        return None if self.confirm("Start now?", is_yes_usual=True) else 0

    async def _send_test_message(self, settings: Settings) -> None:
        channels = (await load_directory(self.client, settings)).channels
        while channels:
            picked = self.pick("Send a test message to (Enter: nowhere)", channels, is_single=True)
            if not picked:
                return
            problem = await post_test_message(self.client, settings, picked[0])
            self.say(problem or "Sent.")
            if not problem:
                return


def report(dialog: Dialog, findings: tuple[Finding, ...]) -> bool:
    """Shows what fails. Returns whether the set-up is done: never if `threadhand doctor` would fail."""
    failed = failures(findings)
    for finding in failed:
        dialog.say(str(finding))
    if failed:
        tail = "`threadhand doctor` checks again, `threadhand setup` goes on."
        dialog.say(f"Not done yet. {tail}")
    else:
        dialog.say("Done: everything that `threadhand doctor` checks works.")
    return not failed


async def ask_model(wizard: Wizard, settings: Settings) -> Answers:
    wizard.say("Any provider that litellm knows, or an OpenAI-compatible endpoint.")
    text = "API key, or https:// address of an endpoint"
    answer = wizard.ask("THREADHAND_LLM_API_KEY", text, is_secret=True)
    answers = wizard.take_pasted(PROVIDER_PREFIXES)
    if answer.startswith(("http://", "https://")):
        answers["THREADHAND_LLM_BASE_URL"] = answer
        answer = wizard.ask("THREADHAND_LLM_API_KEY", "Its API key (Enter: none)", is_secret=True)
    if found := recognise_keys(answer):
        answers |= found
    elif answer:
        answers["THREADHAND_LLM_API_KEY"] = answer
    prefix = next((PROVIDER_PREFIXES[name] for name in answers if name in PROVIDER_PREFIXES), "")
    changed = with_changes(settings, answers)
    _, names = await list_models(wizard.client, prefix or changed.model, changed)
    if changed.llm_base_url:
        prefix = ""
    choices = [Choice(f"{prefix}{name}", name) for name in names]
    question = "Model" if choices else "Model, for example anthropic/claude-sonnet-4-5"
    picked = wizard.pick(question, choices, id_shape=r"\S+", is_single=True)
    return {**answers, "THREADHAND_MODEL": picked[0] if picked else ""}


async def check_model_and_price(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    """Adds the price to the check, because the first call is the moment to look at it."""
    found = await check_models(client, settings)
    if failures(found):
        return found
    price = (await load_model_specs(settings)).price_of(settings.model)
    fact = "is unknown; THREADHAND_PRICE_INPUT_PER_MILLION_USD and _OUTPUT_ set it."
    if price is not None:
        read, written = price.input_per_million_usd / 1000, price.output_per_million_usd / 1000
        fact = f"{read:.4g} US dollars per 1,000 tokens read, {written:.4g} per 1,000 written."
    return (*found, Finding("ok", "price", fact), Finding("ok", "budgets", f"limit {settings.budget}."))


async def ask_slack(wizard: Wizard, settings: Settings) -> Answers:
    if not wizard.confirm("Set up Slack?", is_yes_usual=True):
        return {}
    several = "Will several workspaces install the bot themselves?"
    if wizard.confirm(several, is_yes_usual=bool(settings.slack_client_id)):
        return _ask_several_workspaces(wizard, settings)
    manifest = json.dumps(build_manifest(), separators=(",", ":"))
    wizard.copy(build_manifest_yaml())
    wizard.say(
        "1. Create the app. This link fills in its manifest:\n"
        f"{SLACK_APPS}?new_app=1&manifest_json={quote(manifest)}\n"
        f"   If the page does not show a manifest, open {SLACK_APPS}, choose Create New App and"
        " From a manifest, and paste the output of `threadhand slack manifest` (it is in the"
        " clipboard if the terminal allows that).\n"
        "2. Install it. Copy the bot token (xoxb-...) from OAuth & Permissions.\n"
        "3. Create an app token (xapp-...) with connections:write under Basic Information,"
        " App-Level Tokens. Newer dialogs show both tokens at once, after Create."
    )
    answers = {
        "THREADHAND_SLACK_BOT_TOKEN": wizard.ask("THREADHAND_SLACK_BOT_TOKEN", "Bot token (xoxb-...)", is_secret=True),
        "THREADHAND_SLACK_APP_TOKEN": wizard.ask(
            "THREADHAND_SLACK_APP_TOKEN", "App token (xapp-..., Enter: HTTP mode)", is_secret=True
        ),
    }
    if answers["THREADHAND_SLACK_BOT_TOKEN"] and not answers["THREADHAND_SLACK_APP_TOKEN"]:
        name = "THREADHAND_SLACK_SIGNING_SECRET"
        answers[name] = wizard.ask(name, "Signing secret", is_secret=True)
    return answers


def _ask_several_workspaces(wizard: Wizard, settings: Settings) -> Answers:
    wizard.say(
        "Each workspace installs the bot at your public address, and its token is stored encrypted. Create the app"
        f" at {SLACK_APPS} from `threadhand slack manifest --public-url https://your.address`."
    )
    questions = {
        "THREADHAND_SLACK_CLIENT_ID": ("Client id", False),
        "THREADHAND_SLACK_CLIENT_SECRET": ("Client secret", True),
        "THREADHAND_PUBLIC_URL": ("Public address (https://...)", False),
        "THREADHAND_ENCRYPTION_KEYS": (f"Encryption keys ({GENERATE}: adds a new one)", True),
        "THREADHAND_SLACK_SIGNING_SECRET": ("Signing secret (Enter: Socket Mode)", True),
        "THREADHAND_SLACK_APP_TOKEN": ("App token (xapp-..., Enter: HTTP mode)", True),
    }
    answers = {name: wizard.ask(name, text, is_secret=is_secret) for name, (text, is_secret) in questions.items()}
    return _with_generated(answers, settings)


def _with_generated(answers: Answers, settings: Settings) -> Answers:
    """Replaces `generate` by new keys. A new encryption key precedes the others, which older tokens still need."""
    made = {
        "THREADHAND_API_TOKEN": secrets.token_urlsafe(32),
        "THREADHAND_ENCRYPTION_KEYS": ",".join((Fernet.generate_key().decode(), *settings.token_keys)),
    }
    return {name: made[name] if text == GENERATE and name in made else text for name, text in answers.items()}


async def ask_discord(wizard: Wizard, settings: Settings) -> Answers:
    if not wizard.confirm("Set up Discord?", is_yes_usual=True):
        return {}
    wizard.say(
        f"1. Create an application at {DISCORD_APPS}.\n"
        "2. Under Bot, switch on the Message Content Intent and save.\n"
        "3. Under Bot, choose Reset Token, and copy the token."
    )
    name = "THREADHAND_DISCORD_TOKEN"
    token = wizard.ask(name, "Bot token", is_secret=True)
    if not token:
        return {}
    changed = with_changes(settings, {name: token})
    application = await wizard.client.discord(changed, "/applications/@me")
    if application_id := application.text("id"):
        wizard.say(f"4. Add the bot to your server:\n{discord_invite(application_id)}")
        wizard.confirm("Is it in the server?", is_yes_usual=True)
    return {name: token}


async def ask_access(wizard: Wizard, settings: Settings) -> Answers:
    wizard.say(
        "Nobody may talk to the agent until you say who. Every list that is set must fit. * stands for all; Enter"
        " leaves a list as it is."
    )
    directory = await load_directory(wizard.client, settings)
    lists = {
        "THREADHAND_ALLOWED_WORKSPACES": ("Workspaces and servers", directory.workspaces, "WORKSPACES"),
        "THREADHAND_ALLOWED_CHANNELS": ("Channels (Enter: all of these)", directory.channels, "CHANNELS"),
        "THREADHAND_ALLOWED_USERS": ("People (Enter: everyone there)", directory.people, "USERS"),
        "THREADHAND_ADMINS": (
            "Admins, who let people in and change budgets in chat", directory.people, "ADMINS",
        ),
    }  # fmt: skip
    return {
        name: ",".join(wizard.pick(text, choices, id_shape=ID_SHAPES[kind]) or ())
        for name, (text, choices, kind) in lists.items()
    }


async def check_access(_client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    warning = settings.no_access_warning
    return (Finding("fail", "access", warning),) if warning else ()


async def ask_budgets(wizard: Wizard, _settings: Settings) -> Answers:
    wizard.say(
        "Enter keeps these limits: a run costs at most 2 US dollars or 1,000,000 tokens, a person 20 and a workspace"
        " 100 US dollars a day. Give other amounts, or `none` for no limit."
    )
    questions = {"RUN": "A run", "USER_DAY": "A person and day", "WORKSPACE_DAY": "A workspace and day"}
    names = {f"{PREFIX}BUDGET_{name}_USD": text for name, text in questions.items()}
    return {name: wizard.ask(name, f"{text}, US dollars") for name, text in names.items()}


async def ask_http(wizard: Wizard, settings: Settings) -> Answers:
    wizard.say("Without a token, the HTTP API serves only programs on this machine.")
    name = "THREADHAND_API_TOKEN"
    text = f"Token ({GENERATE}: makes one, Enter: none)"
    return _with_generated({name: wizard.ask(name, text, is_secret=True)}, settings)


async def accept(_client: ServiceClient, _settings: Settings) -> tuple[Finding, ...]:
    """Accepts answers that no service can confirm; their form is checked before."""
    return ()


def has_slack(settings: Settings) -> bool:
    try:
        return settings.slack_mode != "off"
    except ConfigurationError:
        return False


SECTIONS = (
    Section("Language model", lambda one: bool(one.model), ask_model, check_model_and_price),
    Section("Slack", has_slack, ask_slack, check_slack),
    Section("Discord", lambda one: bool(one.discord_token), ask_discord, check_discord),
    Section("Access", lambda one: not one.no_access_warning, ask_access, check_access),
    Section(
        "Budgets", lambda one: any(name.startswith("budget_") for name in one.model_fields_set), ask_budgets, accept
    ),
    Section("HTTP API", lambda one: bool(one.api_token), ask_http, accept),
)


async def run_wizard(dialog: Dialog, env_file: Path) -> int | None:
    """Runs the guided set-up. Returns the exit code, or None if the program is to start now."""
    async with open_service_client() as client:
        return await Wizard(dialog, env_file, client).run()


async def run_from_file(dialog: Dialog, answers_file: Path, env_file: Path) -> bool:
    """Sets the program up with answers from a YAML file, and returns whether it is done.

    The file maps settings to values; `test_channel` is the id of a channel for the test message. Saves nothing if a
    check fails. Raises ConfigurationError if the file cannot be read or a value is invalid.
    """
    settings = load_process_settings(env_file)
    answers = _read_answers(answers_file)
    channel_id = answers.pop("test_channel", "")
    answers = _with_generated(answers, settings)
    changed = with_changes(settings, answers)
    findings = await check_settings(changed)
    if any(not finding.is_untested for finding in failures(findings)):
        report(dialog, findings)
        dialog.say(f"Nothing was written to {env_file}.")
        return False
    env.write_env_file(env_file, answers)
    dialog.say(f"{len(answers)} settings were written to {env_file}.")
    is_done = report(dialog, findings)
    if channel_id and is_done:
        async with open_service_client() as client:
            problem = await post_test_message(client, changed, channel_id)
        dialog.say(problem or "The test message was sent.")
        return not problem
    return is_done


def _read_answers(file: Path) -> Answers:
    try:
        found: object = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", "") or str(error).replace("\n", " ")
        raise ConfigurationError(f"{file} cannot be read: {reason}.") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{file} must map settings to values, such as model: gpt-5.")
    return {_variable(str(name)): _text(value) for name, value in found.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - YAML is untyped


def _variable(name: str) -> str:
    if name == "test_channel" or name.isupper():
        return name
    return f"{PREFIX}{name.upper()}"


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(one) for one in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - YAML is untyped
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
