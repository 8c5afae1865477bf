"""`threadhand setup`: asks for keys section by section, tries each, and writes them to `.env`."""

import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import yaml
from cryptography.fernet import Fernet

from bots.bootstrap.model_specs import load_model_specs
from bots.settings import PREFIX, Settings, load_process_settings, with_changes
from bots.settings import env_file as env
from bots.settings.access import ANYONE, CHANNEL_ID, USER_ID, WORKSPACE_ID
from bots.setup.chat_directory import load_chat_directory, post_test_message
from bots.setup.dialog import SLACK_CONFIGURATION_TOKEN, Choice, Dialog, pick_choices, recognise_keys
from bots.setup.doctor import check_services
from bots.setup.findings import Finding, failed_findings
from bots.setup.model_checks import check_models, list_models
from bots.setup.service_checks import (
    DISCORD_APPS,
    SLACK_APPS,
    NoReply,
    ServiceClient,
    ServiceReply,
    check_discord,
    check_slack,
    discord_invite,
    open_service_client,
)
from bots.slack.install.manifest import build_manifest
from core.domain.errors import ConfigurationError
from core.domain.json import JsonObject, json_fields, json_objects

GENERATE = "generate"
NO_VALUES = frozenset({"y", "yes", "n", "no"})
Answers = dict[str, str]
ChoiceT = TypeVar("ChoiceT")
Check = Callable[[ServiceClient, Settings], Awaitable[tuple[Finding, ...]]]

PROVIDER_PREFIXES = {
    "ANTHROPIC_API_KEY": "anthropic/",
    "OPENAI_API_KEY": "openai/",
    "OPENROUTER_API_KEY": "openrouter/",
    "GROQ_API_KEY": "groq/",
    "XAI_API_KEY": "xai/",
}
KEYLESS_PREFIX = "ollama_chat/"
"""The prefix of the models that are listed if there is no key. They are those of the Ollama server on this machine."""
SLACK_CREDENTIALS = {
    "THREADHAND_SLACK_CLIENT_ID": "client_id",
    "THREADHAND_SLACK_CLIENT_SECRET": "client_secret",
    "THREADHAND_SLACK_SIGNING_SECRET": "signing_secret",
}
"""The settings that Slack returns when it creates an app, and Slack's names for them."""
SLACK_QUESTIONS = {
    "THREADHAND_SLACK_BOT_TOKEN": "Bot token (xoxb-...)",
    "THREADHAND_SLACK_APP_TOKEN": "App token (xapp-..., Enter: HTTP mode)",
    "THREADHAND_SLACK_CLIENT_ID": "Client id",
    "THREADHAND_SLACK_CLIENT_SECRET": "Client secret",
    "THREADHAND_SLACK_SIGNING_SECRET": "Signing secret (Enter: Socket Mode)",
    "THREADHAND_ENCRYPTION_KEYS": f"Encryption keys ({GENERATE}: adds a new one)",
}
# shorter numbers are numbers of rows in the list
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
    """Asks the questions of all sections, and holds keys that are pasted before the question about them."""

    def __init__(self, dialog: Dialog, env_file: Path, client: ServiceClient) -> None:
        self._dialog = dialog
        self.env_file = env_file.absolute()
        self.client = client
        self._pasted: Answers = {}

    async def run(self) -> int | None:
        """Asks the questions of all sections. Returns the exit code, or None if the program is to start now.

        Saves each section as soon as its keys work, so that an interrupted setup can be continued."""
        self.say(f"Enter keeps what is there; Ctrl-D leaves. Settings go to\n{self.env_file}")
        title = "the start"
        try:
            settings = self.settings()
            done = [one.title for one in SECTIONS if one.is_done(settings)]
            again = self.pick("Set up already. Change which? (Enter: none)", [Choice(one, one) for one in done])
            for section in SECTIONS:
                title = section.title
                if title in again or title not in done:
                    await self._run_section(section)
            title = "the last check"
            self.say("\nThe last check")
            settings = self.settings()
            if not show_result(self._dialog, await check_services(settings)):
                return 1
            channels = (await load_chat_directory(self.client, settings)).channels
            while picked := self.pick("Send a test message to (Enter: nowhere)", channels, is_single=True):
                problem = await post_test_message(self.client, settings, picked[0])
                self.say(problem or "Sent.")
                if not problem:
                    break
            return None if self.confirm("Start now?", is_yes_usual=True) else 0
        except EOFError:
            self.say(f"Left at {title}. `threadhand setup` asks for what is missing.")
            return 1

    def say(self, text: str) -> None:
        self._dialog.say(text)

    def show_link(self, title: str, address: str, file_name: str) -> None:
        self._dialog.show_link(title, address, self.env_file.with_name(file_name))

    def settings(self) -> Settings:
        return load_process_settings(self.env_file)

    def ask_text(self, question: str, *, is_secret: bool = False, variables: Collection[str] = ()) -> str:
        """Asks a question and returns the answer.

        Keys of variables other than these are kept for their own questions. If the answer has only such keys, the
        question is asked again."""
        while True:
            answer = self._dialog.ask(question, is_secret=is_secret)
            keys = recognise_keys(answer)
            self._pasted |= keys
            if others := ", ".join(name for name in keys if name not in variables):
                self.say(f"That is for {others}: kept.")
            if not keys or any(name in variables for name in keys):
                return answer

    def ask_setting(self, text: str, *variables: str, is_secret: bool = False) -> Answers:
        """Asks for the value of the first variable until it is valid. Returns an empty dictionary if the answer is
        empty.

        Keys of the further variables are answers, too. If the first variable is the key of a model, an address is that
        of the model's endpoint."""
        if answers := self.take_pasted(variables):
            self.say(f"{text}: pasted before.")
        while not answers:
            value = self.ask_text(text, is_secret=is_secret, variables=variables)
            if not value:
                return {}
            answers = self.take_pasted(variables)
            if not answers and value.lower() in NO_VALUES:
                self.say(f"`{value}` is no answer here: give a value, or press Enter for none.")
            elif not answers:
                is_endpoint = variables[0] == "THREADHAND_LLM_API_KEY" and value.startswith(("http://", "https://"))
                name = "THREADHAND_LLM_BASE_URL" if is_endpoint else variables[0]
                answers = _with_generated({name: value}, self.settings())
                try:
                    with_changes(self.settings(), answers)
                except ConfigurationError as error:
                    self.say(f"{error}")
                    answers = {}
        return answers

    def confirm(self, question: str, *, is_yes_usual: bool = False) -> bool:
        words = {"y": True, "yes": True, "n": False, "no": False, "": is_yes_usual}
        return self.choose_word(f"{question} ({'Y/n' if is_yes_usual else 'y/N'})", words)

    def choose_word(self, question: str, words: Mapping[str, ChoiceT]) -> ChoiceT:
        """Asks a question until the answer is one of the words. Returns what the word stands for."""
        while (answer := self.ask_text(question).lower()) not in words:
            self.say(f"Answer with {', '.join(word for word in words if word)}, or press Enter.")
        return words[answer]

    def pick(self, question: str, choices: list[Choice], *, id_shape: str = "", is_single: bool = False) -> list[str]:
        """Does the same as `dialog.pick`, but asks nothing if there is nothing to pick or to type."""
        if not choices and not id_shape:
            return []
        return pick_choices(self.say, self.ask_text, question, choices, id_shape=id_shape, is_single=is_single)

    def take_pasted(self, names: Collection[str]) -> Answers:
        """Returns the pasted keys of these variables and forgets them."""
        return {name: self._pasted.pop(name) for name in names if name in self._pasted}

    async def _run_section(self, section: Section) -> None:
        settings = self.settings()
        self.say(f"\n{section.title}")
        word = "new"
        answers: Answers = {}
        while word != "skip":
            if word == "new":
                answers = await section.ask(self, settings)
            if not answers or await self._try_and_save(section.check, settings, answers):
                return
            question = "Enter tries again, `new` asks again, `skip` leaves it out"
            word = self.choose_word(question, {"new": "new", "skip": "skip", "": ""})
            # a better key may have been pasted
            answers |= self.take_pasted(answers)

    async def _try_and_save(self, check: Check, settings: Settings, answers: Answers) -> bool:
        try:
            found = await check(self.client, with_changes(settings, answers))
        except ConfigurationError as error:
            self.say(f"Not saved. {error}")
            return False
        failed = failed_findings(found)
        for finding in failed:
            self.say(f"{finding.subject}: {finding.fact} {finding.remedy}".rstrip())
        if any(not finding.is_untested for finding in failed):
            self.say("Not saved.")
            return False
        for finding in found:
            if finding.state == "ok":
                self.say(f"{finding.subject}: {finding.fact}")
        env.write_env_file(self.env_file, answers)
        self.say("Saved, not tested." if failed else "Saved.")
        return True


def show_result(dialog: Dialog, findings: tuple[Finding, ...]) -> bool:
    """Shows what fails. Returns whether the set-up is done, which it is only if `threadhand doctor` would find no
    failure."""
    failed = failed_findings(findings)
    for finding in failed:
        dialog.say(str(finding))
    if failed:
        dialog.say("Not done yet: `threadhand setup` asks for what is missing, `threadhand doctor` checks again.")
    else:
        dialog.say("Done: everything that `threadhand doctor` checks works.")
    return not failed


async def ask_model(wizard: Wizard, settings: Settings) -> Answers:
    wizard.say(
        "Any provider that litellm knows, or an OpenAI-compatible endpoint. Ollama needs no key. Bedrock and Vertex"
        " take their credentials from the environment."
    )
    key, keys = "THREADHAND_LLM_API_KEY", ("THREADHAND_LLM_API_KEY", *PROVIDER_PREFIXES)
    answers = wizard.ask_setting("API key, or https:// address of an endpoint (Enter: none)", *keys, is_secret=True)
    if "THREADHAND_LLM_BASE_URL" in answers:
        answers |= wizard.ask_setting("Its API key (Enter: none)", key, is_secret=True)
    changed = with_changes(settings, answers)
    known = answers if answers or changed.model else changed.provider_keys
    prefix = next((PROVIDER_PREFIXES[name] for name in known if name in PROVIDER_PREFIXES), "")
    if not prefix and not answers and not changed.model:
        prefix = KEYLESS_PREFIX
    _, names = await list_models(wizard.client, prefix or changed.model, changed)
    if changed.llm_base_url:
        prefix = ""
    choices = [Choice(f"{prefix}{name}", name) for name in names]
    question = "Model" if choices else "Model, for example anthropic/claude-sonnet-4-5 or ollama_chat/llama3.2"
    picked = wizard.pick(question, choices, id_shape=r"\S+", is_single=True)
    answers |= wizard.take_pasted(keys)
    if picked:
        answers["THREADHAND_MODEL"] = picked[0]
    elif not changed.model:
        wizard.say("Without a model there is nothing to save.")
        return {}
    return answers


async def check_model_and_price(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    """Checks the model and reports its price, so that people see the price when they choose the model."""
    found = await check_models(client, settings)
    if failed_findings(found):
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
        wizard.say("Each workspace installs the bot at your public address, and its token is stored encrypted.")
        answers = wizard.ask_setting("Public address (https://...)", "THREADHAND_PUBLIC_URL")
        url = answers.get("THREADHAND_PUBLIC_URL") or settings.public_url
        answers |= (await _create_slack_app(wizard, settings, build_manifest(public_url=url)))[0]
        names = (*SLACK_CREDENTIALS, "THREADHAND_ENCRYPTION_KEYS", "THREADHAND_SLACK_APP_TOKEN")
        last, alternative = names[-1], "THREADHAND_SLACK_SIGNING_SECRET"
    else:
        created, place = await _create_slack_app(wizard, settings, build_manifest())
        wizard.say(
            f"2. Install it{place and f': {place}/install-on-team'}. Copy the bot token (xoxb-...) from OAuth &"
            " Permissions.\n"
            "3. Create an app token (xapp-...) with connections:write under Basic Information, App-Level Tokens."
        )
        names = ("THREADHAND_SLACK_BOT_TOKEN", "THREADHAND_SLACK_APP_TOKEN", "THREADHAND_SLACK_SIGNING_SECRET")
        last, alternative = names[-1], "THREADHAND_SLACK_APP_TOKEN"
        answers = {name: text for name, text in created.items() if name in names}
    for name in names:
        # either of the last two settings decides how events arrive
        if name not in answers and not (name == last and alternative in answers):
            answers |= wizard.ask_setting(SLACK_QUESTIONS[name], name, is_secret=name != "THREADHAND_SLACK_CLIENT_ID")
    return answers


async def _create_slack_app(wizard: Wizard, settings: Settings, manifest: JsonObject) -> tuple[Answers, str]:
    """Creates the app if the user has a token for that, and otherwise shows a link that does.

    Returns the app's credentials and the address of its pages, both empty if the app was not created here."""
    wizard.say(
        f"1. Create the app. With a token from {SLACK_APPS} (Your App Configuration Tokens, Generate Token), it is"
        " created here."
    )
    text = json.dumps(manifest, separators=(",", ":"))
    question = "App configuration token (xoxe.xoxp-..., Enter: create the app in the browser)"
    while token := wizard.ask_setting(question, SLACK_CONFIGURATION_TOKEN, is_secret=True).get(
        SLACK_CONFIGURATION_TOKEN
    ):
        try:
            reply = await wizard.client.call_slack(settings, "apps.manifest.create", token, manifest=text)
        except NoReply:
            reply = ServiceReply()
        if app_id := reply.text("app_id"):
            made = json_fields(reply.body.get("credentials"))
            wizard.say(f"The app {app_id} is created.")
            credentials = {name: str(made.get(key) or "") for name, key in SLACK_CREDENTIALS.items()}
            return {name: text for name, text in credentials.items() if text}, f"{SLACK_APPS}/{app_id}"
        reasons = [f"{one.get('pointer')}: {one.get('message')}" for one in json_objects(reply.body.get("errors"))]
        wizard.say(f"Slack does not create it: {'; '.join([reply.text('error') or 'no answer', *reasons])}.")
    wizard.show_link("Create the Slack app", f"{SLACK_APPS}?new_app=1&manifest_json={quote(text)}", "slack-app.html")
    wizard.say(
        f"If the page does not show a manifest, open {SLACK_APPS}, choose Create New App and From a manifest, and paste"
        " the output of `threadhand slack manifest`."
    )
    return {}, ""


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
    answers = wizard.ask_setting("Bot token", "THREADHAND_DISCORD_TOKEN", is_secret=True)
    try:
        application = await wizard.client.call_discord(with_changes(settings, answers), "/applications/@me")
    except NoReply:
        return answers
    if application_id := application.text("id"):
        wizard.say(f"4. Add the bot to your server:\n{discord_invite(application_id)}")
        wizard.confirm("Is it in the server?", is_yes_usual=True)
    return answers


async def ask_access(wizard: Wizard, settings: Settings) -> Answers:
    wizard.say(
        "Nobody may talk to the agent until you say who. Every list that is set must fit. * stands for all; Enter"
        " leaves a list as it is."
    )
    directory = await load_chat_directory(wizard.client, settings)
    lists = {
        "THREADHAND_ALLOWED_WORKSPACES": ("Workspaces and servers", directory.workspaces, "WORKSPACES"),
        "THREADHAND_ALLOWED_CHANNELS": ("Channels (Enter: all of these)", directory.channels, "CHANNELS"),
        "THREADHAND_ALLOWED_USERS": ("People (Enter: everyone there)", directory.people, "USERS"),
        "THREADHAND_ADMINS": (
            "Admins, who let people in and change budgets in chat", directory.people, "ADMINS",
        ),
    }  # fmt: skip
    picked = {
        name: wizard.pick(text, choices, id_shape=ID_SHAPES[kind]) for name, (text, choices, kind) in lists.items()
    }
    return {name: ",".join(values) for name, values in picked.items() if values}


async def ask_budgets(wizard: Wizard, _settings: Settings) -> Answers:
    wizard.say(
        "Enter keeps these limits: a run costs at most 2 US dollars or 1,000,000 tokens, a person 20 and a workspace"
        " 100 US dollars a day. Give other amounts, or `none` for no limit."
    )
    questions = {"RUN": "A run", "USER_DAY": "A person and day", "WORKSPACE_DAY": "A workspace and day"}
    answers: Answers = {}
    for name, text in questions.items():
        answers |= wizard.ask_setting(f"{text}, US dollars", f"{PREFIX}BUDGET_{name}_USD")
    return answers


async def ask_http(wizard: Wizard, _settings: Settings) -> Answers:
    wizard.say("Without a token, the HTTP API serves only programs on this machine.")
    return wizard.ask_setting(f"Token ({GENERATE}: makes one, Enter: none)", "THREADHAND_API_TOKEN", is_secret=True)


async def accept_unchecked(_client: ServiceClient, _settings: Settings) -> tuple[Finding, ...]:
    """Accepts answers that no service can confirm. Their form was checked when they were entered."""
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
    Section("Access", lambda one: not one.no_access_warning, ask_access, accept_unchecked),
    Section(
        "Budgets",
        lambda one: any(name.startswith("budget_") for name in one.model_fields_set),
        ask_budgets,
        accept_unchecked,
    ),
    Section("HTTP API", lambda one: bool(one.api_token), ask_http, accept_unchecked),
)


async def run_wizard(dialog: Dialog, env_file: Path) -> int | None:
    """Runs the guided set-up. Returns the exit code, or None if the program is to start now."""
    async with open_service_client() as client:
        return await Wizard(dialog, env_file, client).run()


async def run_from_file(dialog: Dialog, answers_file: Path, env_file: Path) -> bool:
    """Sets the program up with answers from a YAML file, and returns whether it is done.

    The file maps settings to values; `test_channel` is the id of a channel for the test message. Saves nothing if a
    check fails. Raises ConfigurationError if the file cannot be read or a value is invalid."""
    settings = load_process_settings(env_file)
    answers = _read_answers(answers_file)
    channel_id = answers.pop("test_channel", "")
    answers = _with_generated(answers, settings)
    changed = with_changes(settings, answers)
    findings = await check_services(changed)
    if any(not finding.is_untested for finding in failed_findings(findings)):
        show_result(dialog, findings)
        dialog.say(f"Nothing was written to {env_file}.")
        return False
    env.write_env_file(env_file, answers)
    dialog.say(f"{len(answers)} settings were written to {env_file}.")
    is_done = show_result(dialog, findings)
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
