"""The guided set-up, against stand-ins of the services it tests keys with."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.fernet import Fernet
from hypothesis import example, given
from hypothesis import strategies as st

from bots.settings import VARIABLE_NAMES, load_settings
from bots.settings import env_file as env
from bots.setup.wizard import run_wizard
from core import http_shutdown


@dataclass
class ScriptedDialog:
    """Answers by the start of the question; the same question again gets the next answer, then nothing."""

    answers: dict[str, list[str]]
    said: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    ends_at: str = "never"

    def say(self, text: str) -> None:
        self.said.append(text)

    def ask(self, question: str, *, is_secret: bool = False) -> str:
        if question.startswith(self.ends_at):
            raise EOFError
        if is_secret:
            self.hidden.append(question)
        for start, answers in self.answers.items():
            if question.startswith(start) and answers:
                return answers.pop(0)
        return ""


async def auth_test(request: web.Request) -> web.Response:
    good = request.headers["Authorization"] == "Bearer xoxb-good"
    reply = {"ok": True, "user": "agent", "team": "Test team"} if good else {"ok": False}
    return web.json_response(reply if good else {**reply, "error": "invalid_auth"})


async def open_connection(request: web.Request) -> web.Response:
    return web.json_response({"ok": request.headers["Authorization"] == "Bearer xapp-good"})


async def oauth(request: web.Request) -> web.Response:
    """As Slack answers a code that nobody has."""
    form = await request.post()
    if form["client_id"] != "1.2":
        return web.json_response({"ok": False, "error": "invalid_client_id"})
    if form["client_secret"] != "app-secret":
        return web.json_response({"ok": False, "error": "bad_client_secret"})
    return web.json_response({"ok": False, "error": "invalid_code"})


async def models(request: web.Request) -> web.Response:
    is_known = request.headers.get("Authorization") == "Bearer model-key"
    return web.json_response({"data": []}, status=200 if is_known else 401)


async def me(request: web.Request) -> web.Response:
    if request.headers["Authorization"] != "Bot good.token.here":
        return web.Response(status=401, text="<html>")
    return web.json_response({"username": "agent"})


@pytest.fixture
async def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Path, None]:
    """The path of a `.env` that points at the stand-ins."""
    for name in VARIABLE_NAMES:
        monkeypatch.delenv(name, raising=False)
    app = web.Application()
    app.add_routes(
        [
            web.post("/slack/auth.test", auth_test),
            web.post("/slack/apps.connections.open", open_connection),
            web.post("/slack/oauth.v2.access", oauth),
            web.get("/v1/models", models),
            web.get("/discord/users/@me", me),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    file = tmp_path / ".env"
    file.write_text(
        f"# mine\nFOREIGN=1\nTHREADHAND_SLACK_API_URL={base}/slack\n"
        f"THREADHAND_DISCORD_API_URL={base}/discord\nTHREADHAND_LLM_BASE_URL={base}/v1\n"
    )
    yield file
    await http_shutdown.shut_down_server(runner)


def values(file: Path) -> Any:
    return load_settings({}, file)


async def test_what_works_is_saved_beside_the_lines_of_others(services: Path) -> None:
    dialog = ScriptedDialog(
        {
            "Model": ["my-model"],
            "API key": ["model-key"],
            "Bot token (xoxb": ["xoxb-good"],
            "App token": ["xapp-good"],
            "Bot token": ["good.token.here"],
            "People": ["U1, U2"],
            "Token": ["generate"],
        }
    )
    await run_wizard(dialog, services)
    settings = values(services)
    assert (settings.model, settings.allowed_users) == ("my-model", ("U1", "U2"))
    assert settings.slack_mode == "socket"
    assert settings.discord_token.get_secret_value() == "good.token.here"
    assert len(settings.api_token.get_secret_value()) >= 40
    assert services.read_text().startswith("# mine\nFOREIGN=1\n")
    assert services.stat().st_mode & 0o777 == 0o600
    assert "Slack knows the bot as agent in Test team. Saved." in dialog.said
    assert all("xoxb-good" not in text for text in dialog.said)


async def test_a_refused_key_is_asked_for_again(services: Path) -> None:
    dialog = ScriptedDialog(
        {
            "Bot token (xoxb": ["wrong", "xoxb-bad", "xoxb-good"],
            "App token": ["xapp-good"] * 3,
        }
    )
    await run_wizard(dialog, services)
    said = "\n".join(dialog.said)
    assert "such a token starts with xoxb-" in said
    assert "Slack refuses auth.test: invalid_auth." in said
    assert values(services).slack_bot_token.get_secret_value() == "xoxb-good"


SEVERAL = {
    "\nSlack: one workspace, or several": ["several"],
    "Client id": ["1.2"],
    "Client secret": ["app-secret"],
    "Public address": ["https://agent.example"],
    "Keys": ["generate"],
    "Signing secret": ["signing-secret"],
}


def several(**changes: list[str]) -> ScriptedDialog:
    """Who sets up Slack for several workspaces; changes by the first word of the question."""
    script = {start: list(answers) for start, answers in SEVERAL.items()}
    for word, answers in changes.items():
        script[next(start for start in script if word in start)] = answers
    return ScriptedDialog(script)


async def test_an_app_that_workspaces_install_is_set_up_and_its_key_is_made(services: Path) -> None:
    dialog = several()
    await run_wizard(dialog, services)
    settings = values(services)
    assert settings.slack_mode == "http"
    assert (settings.slack_client_id, settings.public_url) == ("1.2", "https://agent.example")
    assert settings.slack_client_secret.get_secret_value() == "app-secret"
    (key,) = settings.token_keys
    Fernet(key)
    assert any(
        text == "Workspaces install the bot at https://agent.example/slack/install. Saved."
        for text in dialog.said
    )
    hidden = " ".join(dialog.hidden)
    assert all(word in hidden for word in ("Client secret", "Keys", "Signing secret"))
    assert not any(secret in " ".join(dialog.said) for secret in ("app-secret", key))


async def test_a_second_key_goes_before_the_first_and_enter_stays_with_what_was_chosen(
    services: Path,
) -> None:
    await run_wizard(several(), services)
    (old,) = values(services).token_keys
    await run_wizard(ScriptedDialog({"Keys": ["generate"]}), services)
    new = values(services).token_keys
    assert len(new) == 2
    assert new[1] == old != new[0]


async def test_an_app_that_slack_does_not_know_is_asked_for_again(services: Path) -> None:
    dialog = several(Client=["9.9", "1.2", "1.2"], secret=["app-secret", "no", "app-secret"])
    for start in ("Public address", "Keys", "Signing secret"):
        dialog.answers[start] *= 3
    await run_wizard(dialog, services)
    said = "\n".join(dialog.said)
    assert "Slack does not know this app: invalid_client_id. Not saved" in said
    assert "Slack does not know this app: bad_client_secret. Not saved" in said
    assert values(services).slack_client_id == "1.2"


async def test_what_is_missing_for_several_workspaces_is_named(services: Path) -> None:
    before = services.read_text()
    dialog = several(Keys=[])
    await run_wizard(dialog, services)
    assert any("set THREADHAND_ENCRYPTION_KEYS, too." in text for text in dialog.said)
    assert services.read_text() == before


async def test_a_token_for_one_workspace_is_not_kept_beside(services: Path) -> None:
    env.write_env_file(services, {"THREADHAND_SLACK_BOT_TOKEN": "xoxb-good"})
    dialog = several()
    await run_wizard(dialog, services)
    assert any("Take THREADHAND_SLACK_BOT_TOKEN out" in text for text in dialog.said)
    assert not values(services).slack_client_id


async def test_a_choice_that_there_is_not_is_asked_for_again(services: Path) -> None:
    dialog = several(Slack=["both", "Several"])
    await run_wizard(dialog, services)
    assert "One of these, please: one, several." in dialog.said
    assert values(services).slack_client_id == "1.2"


async def test_a_key_that_does_not_work_is_not_saved(services: Path) -> None:
    before = services.read_text()
    dialog = ScriptedDialog({"Bot token": ["bad.token.here"], "Model": ["m"], "API key": ["no"]})
    await run_wizard(dialog, services)
    assert services.read_text() == before
    assert (
        "The model's endpoint refuses the key. Not saved; once more, or Enter to leave it out."
        in (dialog.said)
    )


async def test_a_service_that_does_not_answer_is_said_so(services: Path) -> None:
    env.write_env_file(services, {"THREADHAND_LLM_BASE_URL": "http://127.0.0.1:1"})
    dialog = ScriptedDialog({"Model": ["m"]})
    await run_wizard(dialog, services)
    assert any("http://127.0.0.1:1 does not answer." in text for text in dialog.said)


async def test_an_interrupted_set_up_goes_on_where_it_ended(services: Path) -> None:
    first = ScriptedDialog({"Model": ["m"], "API key": ["model-key"]}, ends_at="App token")
    await run_wizard(first, services)
    assert values(services).model == "m"
    second = ScriptedDialog({"Bot token": []})
    await run_wizard(second, services)
    assert values(services).model == "m"
    assert any(text.startswith("API key [set]") for text in second.hidden)


@pytest.mark.slow
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
