"""The guided set-up, against simulated services. Recordings of the terminal are in setup_sessions."""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import example, given
from hypothesis import strategies as st

from bots.settings import VARIABLE_NAMES, load_settings
from bots.settings import env_file as env
from bots.setup.chat_directory import TEST_MESSAGE
from bots.setup.dialog import SLACK_CONFIGURATION_TOKEN, Choice, pick_choices, recognise_keys
from bots.setup.wizard import run_from_file, run_wizard
from bots.slack.install.manifest import build_manifest
from simulator.discord.server import SIMULATED_TOKEN
from tests.integration.bots.setup_stage import SetupStage, setup_stage

DISCORD_TOKEN = "MTAwMQ.simulated.discord-token"
SESSIONS = Path(__file__).parent / "setup_sessions"
KEY = "API key, or https:// address of an endpoint (Enter: none)"
BOT_TOKEN, APP_TOKEN = "Bot token (xoxb-...)", "App token (xapp-..., Enter: HTTP mode)"
SEVERAL = "Will several workspaces install the bot themselves? (y/N)"
WORKSPACES = "Workspaces and servers"
CHANNELS, PEOPLE = "Channels (Enter: all of these)", "People (Enter: everyone there)"
ADMINS = "Admins, who let people in and change budgets in chat"
HTTP_TOKEN = "Token (generate: makes one, Enter: none)"
AGAIN = "Enter tries again, `new` asks again, `skip` leaves it out"
CHANGE = "Set up already. Change which? (Enter: none)"
CREATE = "App configuration token (xoxe.xoxp-..., Enter: create the app in the browser)"
TEST = "Send a test message to (Enter: nowhere)"
DISCORD = (("Set up Discord? (Y/n)", ""), ("Bot token", SIMULATED_TOKEN), ("Is it in the server? (Y/n)", ""))
BUDGETS = (("A run, US dollars", "1"), ("A person and day, US dollars", ""), ("A workspace and day, US dollars", ""))


@dataclass
class ScriptedDialog:
    """Answers by the start of the question; the same question again gets the next answer, then "skip"."""

    answers: dict[str, list[str]]
    said: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def show_link(self, title: str, address: str, file: Path) -> None:
        self.links.append(address)

    def ask(self, question: str, *, is_secret: bool = False) -> str:
        if is_secret:
            self.hidden.append(question)
        for start, answers in self.answers.items():
            if question.startswith(start) and answers:
                return answers.pop(0)
        return "skip" if question == AGAIN else "n" if question.endswith("/n)") else ""

    @property
    def text(self) -> str:
        return "\n".join(self.said)


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[SetupStage, None]:
    for name in (*VARIABLE_NAMES, "FOREIGN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    async with setup_stage(tmp_path) as made:
        yield made


def values(stage: SetupStage) -> Any:
    return load_settings({}, stage.env_file)


def recording(name: str) -> str:
    return (SESSIONS / f"{name}.txt").read_text("utf-8")


def model_turns(stage: SetupStage) -> tuple[tuple[str, str], ...]:
    key = ("Its API key (Enter: none)", stage.model.key)
    return ((KEY, stage.model.base_url), key, ("Model", "small"))


async def test_a_set_up_from_the_first_key_to_the_test_message(stage: SetupStage) -> None:
    shown = await stage.session(
        *model_turns(stage),
        ("Set up Slack? (Y/n)", ""),
        (SEVERAL, ""),
        (CREATE, ""),
        (BOT_TOKEN, "xapp-simulated"),
        (BOT_TOKEN, "xoxb-simulated"),
        *DISCORD,
        (WORKSPACES, "acme-corp"),
        (WORKSPACES, "1,2"),
        (CHANNELS, ""),
        (PEOPLE, ""),
        (ADMINS, "1"),
        *BUDGETS,
        (HTTP_TOKEN, "generate"),
        (TEST, "#general"),
        (TEST, "1"),
        ("Start now? (Y/n)", "n"),
    )
    assert shown == recording("happy")
    assert [line for line in shown.splitlines() if len(line) > 80 and "https://" not in line] == []
    settings = values(stage)
    assert (settings.model, settings.slack_mode) == ("small", "socket")
    assert settings.allowed_workspaces == (stage.slack.workspace.team_id, "3001")
    assert settings.admins == ("U0001000002",)
    assert len(settings.api_token.get_secret_value()) >= 40
    assert stage.env_file.read_text().startswith("# mine\nFOREIGN=1\n")
    assert stage.env_file.stat().st_mode & 0o777 == 0o600
    assert stage.posted() == [TEST_MESSAGE]


async def test_a_set_up_that_was_left_goes_on_where_it_ended(stage: SetupStage) -> None:
    first = await stage.session(*model_turns(stage), ("Set up Slack? (Y/n)", "^C"))
    second = await stage.session(
        (CHANGE, ""),
        ("Set up Slack? (Y/n)", ""),
        (SEVERAL, ""),
        (CREATE, ""),
        (BOT_TOKEN, "xoxb-simulated xapp-simulated"),
        ("Set up Discord? (Y/n)", "^D"),
    )
    assert first + second == recording("interrupted")
    assert values(stage).slack_mode == "socket"


async def test_no_answer_leaves_a_section_out_unasked_and_no_pasted_key_is_shown(stage: SetupStage) -> None:
    client_secret = "0123456789abcdef" * 2
    shown = await stage.session(
        (KEY, "y"),
        (KEY, stage.model.base_url),
        ("Its API key (Enter: none)", "wrong-key"),
        ("Model, for example anthropic/claude-sonnet-4-5 or ollama_chat/llama3.2", f"{client_secret}\x15 sk-ant-abc"),
        ("Model, for example anthropic/claude-sonnet-4-5 or ollama_chat/llama3.2", "small"),
        (AGAIN, "again"),
        (AGAIN, "xoxb-simulated"),
        (AGAIN, "skip"),
        ("Set up Slack? (Y/n)", "perhaps"),
        ("Set up Slack? (Y/n)", "yes"),
        (SEVERAL, "xapp-simulated"),
        (SEVERAL, ""),
        (CREATE, "xoxe.xoxp-1-expired"),
        (CREATE, "xoxe.xoxp-simulated"),
        ("Set up Discord? (Y/n)", ""),
        ("Bot token", "y"),
        ("Bot token", "nonsense"),
        (AGAIN, "^C"),
    )
    assert shown == recording("pasted")
    secrets = (
        client_secret,
        "sk-ant-abc",
        "xoxb-simulated",
        "xapp-simulated",
        "xoxp-1-expired",
        "xoxp-simulated",
        "wrong-key",
        "nonsense",
    )
    assert [one for one in secrets if one in shown] == []
    settings = values(stage)
    assert settings.slack_mode == "socket"
    assert settings.slack_signing_secret.get_secret_value() == stage.slack.settings.signing_secret
    (created,) = [one for one in stage.slack.calls if one.method == "apps.manifest.create" and not one.error]
    assert created.arguments["manifest"] == build_manifest()


async def test_a_set_up_from_a_file(stage: SetupStage) -> None:
    channel_id = next(iter(stage.slack.workspace.channels))
    answers = stage.folder / "answers.yaml"
    answers.write_text(
        f"model: small\nllm_base_url: {stage.model.base_url}\nllm_api_key: {stage.model.key}\n"
        "slack_bot_token: xoxb-simulated\nTHREADHAND_SLACK_APP_TOKEN: xapp-simulated\n"
        f"allowed_workspaces: [T0SIM0001]\nallow_guests: true\ntest_channel: {channel_id}\n"
    )
    before, scopes = stage.env_file.read_text(), stage.slack.settings.scopes
    stage.slack.configure(replace(stage.slack.settings, scopes=("chat:write", "users:read")))
    refused = await stage.session(arguments=("--from", "answers.yaml"))
    assert stage.env_file.read_text() == before
    stage.slack.configure(replace(stage.slack.settings, scopes=scopes))
    done = await stage.session(arguments=("--from", "answers.yaml"))
    assert refused + done == recording("from-file")
    assert values(stage).allow_guests is True
    assert stage.posted() == [TEST_MESSAGE]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("modle: small", "THREADHAND_MODLE is not a setting; did you mean THREADHAND_MODEL?"),
        ("model: [", "cannot be read"),
        ("slack_bot_token: xoxp-1", "such a token starts with xoxb-"),
        ("allowed_channels: ['#general']", "'#general' is no id. Write ids such as C0123ABCD"),
    ],
)
async def test_a_file_with_a_mistake_is_told_and_nothing_is_written(
    stage: SetupStage, text: str, sentence: str
) -> None:
    before = stage.env_file.read_text()
    file = stage.folder / "answers.yaml"
    file.write_text(text)
    with pytest.raises(Exception, match=re.escape(sentence)):
        await run_from_file(ScriptedDialog({}), file, stage.env_file)
    assert stage.env_file.read_text() == before


async def test_what_does_not_work_is_not_saved_until_it_does(stage: SetupStage) -> None:
    before = stage.env_file.read_text()
    stage.slack.configure(replace(stage.slack.settings, scopes=("chat:write", "users:read")))
    dialog = ScriptedDialog(
        {
            KEY: [stage.model.base_url],
            "Its API key": ["wrong"],
            "Model": ["small"],
            "Set up": ["y", "y"],
            BOT_TOKEN: ["xoxb-simulated"],
            APP_TOKEN: ["xapp-simulated"],
            "Bot token": ["MTAwMQ.nonsense.token"],
        }
    )
    assert await run_wizard(dialog, stage.env_file) == 1
    assert stage.env_file.read_text() == before
    assert "has 2 of " in dialog.text
    assert "refuses the token (status 401)" in dialog.text
    assert "refuses the key of small." in dialog.text
    assert dialog.said[-1].startswith("Not done yet: ")
    assert "agent_view" in dialog.links[0]
    assert not {"xoxb-simulated", "wrong", stage.model.key} & set(dialog.text.split())


async def test_an_address_with_a_password_is_asked_for_again(stage: SetupStage) -> None:
    address = stage.model.base_url.replace("://", "://user:hunter2@")
    dialog = ScriptedDialog({KEY: [address, stage.model.base_url], "Its API key": [stage.model.key], "Model": ["1"]})
    await run_wizard(dialog, stage.env_file)
    assert "THREADHAND_LLM_BASE_URL has a bad value: it must not contain" in dialog.text
    assert "hunter2" not in dialog.text
    assert values(stage).llm_base_url == stage.model.base_url


def several(**changes: list[str]) -> ScriptedDialog:
    """Who sets up Slack for several workspaces; changes by a word of the question."""
    script = {
        "Set up Slack": ["y"],
        "Will several": ["y"],
        "Client id": ["1.2"],
        "Client secret": ["app-secret"],
        "Public address": ["https://agent.example"],
        "Encryption keys": ["generate"],
        "Signing secret": ["signing-secret"],
    }
    for word, answers in changes.items():
        script[next(start for start in script if word in start)] = answers
    return ScriptedDialog(script)


async def test_an_app_that_workspaces_install_is_set_up_and_its_key_is_made(stage: SetupStage) -> None:
    stage.slack.oauth.client_id, stage.slack.oauth.client_secret = "1.2", "app-secret"
    dialog = several()
    await run_wizard(dialog, stage.env_file)
    settings = values(stage)
    assert settings.slack_mode == "http"
    (key,) = settings.token_keys
    Fernet(key)
    assert "workspaces install the bot at https://agent.example/slack/install." in dialog.text
    assert {"Client secret", "Encryption keys (generate: adds a new one)"} <= set(dialog.hidden)
    assert not {"app-secret", key} & set(dialog.text.split())
    # a second key goes before the first, which older tokens still need
    again = ScriptedDialog({"Set up already": ["1"], "Set up Slack": ["y"], "Will several": ["y"],
                            "Encryption keys": ["generate"]})  # fmt: skip
    await run_wizard(again, stage.env_file)
    assert len(values(stage).token_keys) == 2
    assert values(stage).token_keys[1] == key


async def test_what_is_missing_for_several_workspaces_is_named(stage: SetupStage) -> None:
    before = stage.env_file.read_text()
    dialog = several(Encryption=[])
    await run_wizard(dialog, stage.env_file)
    assert "set THREADHAND_ENCRYPTION_KEYS, too." in dialog.text
    assert stage.env_file.read_text() == before
    env.write_env_file(stage.env_file, {"THREADHAND_SLACK_BOT_TOKEN": "xoxb-simulated"})
    dialog = several()
    await run_wizard(dialog, stage.env_file)
    assert "Take THREADHAND_SLACK_BOT_TOKEN out of .env." in dialog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SLACK_BOT_TOKEN=xoxb-1-2-a export", {"THREADHAND_SLACK_BOT_TOKEN": "xoxb-1-2-a"}),
        ("'sk-ant-api03-abc'", {"ANTHROPIC_API_KEY": "sk-ant-api03-abc"}),
        ("xapp-1-A1-2-b\txoxb-1", {"THREADHAND_SLACK_APP_TOKEN": "xapp-1-A1-2-b",
                                   "THREADHAND_SLACK_BOT_TOKEN": "xoxb-1"}),
        (DISCORD_TOKEN, {"THREADHAND_DISCORD_TOKEN": DISCORD_TOKEN}),
        ("https://api.example.com/v1", {}),
        ("anthropic/claude-sonnet-4-5", {}),
        ("sk-0123456789abcdef", {"THREADHAND_LLM_API_KEY": "sk-0123456789abcdef"}),
        ("sk-other", {}),
        ("xoxe.xoxp-1-ab", {SLACK_CONFIGURATION_TOKEN: "xoxe.xoxp-1-ab"}),
    ],
)  # fmt: skip
def test_keys_are_recognised_wherever_they_are_pasted(text: str, expected: dict[str, str]) -> None:
    assert recognise_keys(text) == expected


def test_a_list_is_picked_from_by_number_name_or_id() -> None:
    rows = [Choice(f"C{n:06}", f"#room-{n} (Slack)") for n in range(30)]
    script = ["31", "room", "#room-7", "2, C0000ABC", ""]
    dialog = ScriptedDialog({"Rooms": script})
    assert pick_choices(dialog.say, dialog.ask, "Rooms", rows, id_shape="C[A-Z0-9]+") == ["C000007"]
    assert pick_choices(dialog.say, dialog.ask, "Rooms", rows, id_shape="C[A-Z0-9]+") == ["C000001", "C0000ABC"]
    assert pick_choices(dialog.say, dialog.ask, "Rooms", rows) == []
    assert "and 10 more: type a part of the name" in dialog.text
    assert "31 is neither in the list nor an id." in dialog.said
    assert any(text.startswith("room fits several: ") for text in dialog.said)


@given(
    st.dictionaries(
        st.sampled_from(["THREADHAND_MODEL", "THREADHAND_API_TOKEN", "THREADHAND_ALLOWED_USERS"]),
        st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1),
    )
)
@example({"THREADHAND_API_TOKEN": "${HOME}$x\\'${"})
def test_any_value_survives_the_file(answers: dict[str, str]) -> None:
    import tempfile

    from bots.settings.env_file import read_env_file

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ".env"
        file.write_text("OTHER=kept\nTHREADHAND_MODEL=old\n")
        env.write_env_file(file, answers)
        expected = {"OTHER": "kept", "THREADHAND_MODEL": "old", **answers}
        assert read_env_file(file) == expected


async def test_an_app_that_slack_creates_here_needs_no_copied_secrets(stage: SetupStage) -> None:
    dialog = several(**{"Client id": [], "Client secret": [], "Signing secret": []})
    dialog.answers["App configuration token"] = [stage.slack.settings.configuration_token]
    await run_wizard(dialog, stage.env_file)
    settings = values(stage)
    assert (settings.slack_mode, settings.slack_client_id) == ("http", stage.slack.oauth.client_id)
    assert settings.slack_client_secret.get_secret_value() == stage.slack.oauth.client_secret
    (created,) = [one for one in stage.slack.calls if one.method == "apps.manifest.create"]
    assert created.arguments["manifest"] == build_manifest(public_url="https://agent.example")


@pytest.mark.parametrize(
    ("model", "has_ollama"), [("ollama_chat/llama3.2", False), ("bedrock/amazon.nova-lite-v1:0", True)]
)
async def test_a_model_without_a_key_is_saved(
    stage: SetupStage, model: str, has_ollama: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = stage.model.base_url if has_ollama else "http://127.0.0.1:9"
    monkeypatch.setattr("bots.setup.model_checks.OLLAMA_URL", address)
    monkeypatch.setenv("OLLAMA_API_BASE", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_BEDROCK_RUNTIME_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "simulated")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    stage.model.key = ""
    dialog = ScriptedDialog({"Model": [model]})
    await run_wizard(dialog, stage.env_file)
    assert values(stage).model == model
    assert ("  small" in dialog.text) == has_ollama
