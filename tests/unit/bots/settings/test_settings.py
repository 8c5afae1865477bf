"""Settings: what is read, what is refused, and what never shows."""

import os
import re
from pathlib import Path

import pytest

from bots.bootstrap.web_access import build_web_services
from bots.settings import VARIABLE_NAMES, Settings, load_process_settings, load_settings, settings_secrets, with_changes
from core.domain.budget import NO_LIMIT, Limit
from core.domain.errors import ConfigurationError


def problem(environ: dict[str, str], env_file: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ, env_file)
    return str(caught.value)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text("THREADHAND_MODEL=from-file\nexport THREADHAND_HTTP_PORT='9000'\n# note\n")
    settings = load_settings({"THREADHAND_MODEL": "from-environment"}, env_file)
    assert (settings.model, settings.http_port) == ("from-environment", 9000)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("THREADHAND_MODLE", "did you mean THREADHAND_MODEL?"),
        ("THREADHAND_QQQQ", "`threadhand doctor --settings` lists all names."),
    ],
)
def test_an_unknown_setting_is_named_with_its_nearest_neighbour_or_the_list(name: str, hint: str) -> None:
    assert problem({name: "x"}) == f"{name} is not a setting; {hint}"


def test_an_unknown_setting_in_the_file_is_refused_too(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text("THREADHAND_HTPP_PORT=1\n")
    assert "did you mean THREADHAND_HTTP_PORT?" in problem({}, env_file)


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_bytes(b"\xff\xfe=1")
    assert problem({}, env_file) == f"{env_file} cannot be read: it is not UTF-8 text."


def test_variables_of_others_are_no_mistake() -> None:
    load_settings({"THREADHAND_TEST_REQUIRE": "jail", "THREADHANDLE": "x", "PATH": "/bin"}, None)


def test_every_bad_value_gets_one_sentence() -> None:
    text = problem(
        {
            "THREADHAND_HTTP_PORT": "abc",
            "THREADHAND_SANDBOX": "vm",
            "THREADHAND_STREAM": "perhaps",
            "THREADHAND_MAX_TURNS": "0",
            "THREADHAND_PUBLIC_URL": "example.test",
        }
    )
    assert sorted(text.splitlines()) == [
        "THREADHAND_HTTP_PORT has a bad value ('abc'): it must be a whole number.",
        "THREADHAND_MAX_TURNS has a bad value ('0'): it must be greater than or equal to 1.",
        "THREADHAND_PUBLIC_URL has a bad value ('example.test'): it must start with http:// or https://.",
        "THREADHAND_SANDBOX has a bad value ('vm'): it must be one of 'local', 'modal', 'docker',"
        " 'unsafe-process', 'none'.",
        "THREADHAND_STREAM has a bad value ('perhaps'): it must be true or false.",
    ]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("EXPOSE_DOMAIN", "a b", "write it like apps.example.org"),
        ("CLOUDFLARE_ACCOUNT_ID", "a b", "write it like 0123456789abcdef"),
        ("MODAL_APP", "a b", "write it like threadhand-sandboxes"),
        ("DOCKER_IMAGE", "a b", "write it like python:3.12-slim"),
        ("BUDGET_RUN_USD", "much", "it must be a number"),
        ("BUDGET_RUN_USD", "inf", "it must be a finite number"),
        ("APPROVAL_HOURS", "0", "it must be greater than 0"),
        ("TIME_ZONE", "Mars/One", "there is no time zone Mars/One; write one like Europe/Helsinki"),
    ],
)
def test_a_reason_is_in_plain_words(name: str, value: str, reason: str) -> None:
    text = problem({f"THREADHAND_{name}": value})
    assert text == f"THREADHAND_{name} has a bad value ({value!r}): {reason}."


@pytest.mark.parametrize("name", ["THREADHAND_SLACK_BOT_TOKEN", "THREADHAND_DATABASE_URL", "THREADHAND_REDIS_URL"])
def test_a_bad_secret_is_reported_without_its_value(name: str) -> None:
    text = problem({name: "hunter2-hunter2"})
    assert text.startswith(f"{name} has a bad value:")
    assert "hunter2" not in text


def test_secrets_do_not_show() -> None:
    environ = {
        "THREADHAND_SLACK_BOT_TOKEN": "xoxb-hidden",
        "THREADHAND_API_TOKEN": "hidden-api",
        "THREADHAND_DATABASE_URL": "postgresql://user:hidden@db/x",
        "THREADHAND_REDIS_URL": "redis://:hidden@r",
        "OPENAI_API_KEY": "sk-hidden",
    }
    settings = load_settings(environ, None)
    assert "hidden" not in f"{settings!r} {settings}"
    assert {"xoxb-hidden", "hidden-api", "sk-hidden"} <= set(settings_secrets(settings))


@pytest.mark.parametrize(
    ("name", "text", "example"),
    [
        ("ALLOWED_WORKSPACES", "T0123,acme-corp", "T0123ABCD"),
        ("ALLOWED_CHANNELS", "#general", "C0123ABCD"),
        ("ALLOWED_USERS", "@alice", "U0123ABCD"),
        ("ALLOWED_USERS", "acme/U0123", "U0123ABCD"),
        ("ALLOWED_ROLES", "@here", "S0123ABCD"),
        ("ALLOWED_APPS", "zapier", "A0123ABCD"),
        ("ADMINS", "bob", "U0123ABCD"),
        ("ADMINS", "alice@example.com", "U0123ABCD"),
    ],
)
def test_a_name_in_place_of_an_id_is_refused_with_the_way_to_the_id(name: str, text: str, example: str) -> None:
    wrong = text.split(",")[-1]
    said = problem({f"THREADHAND_{name}": text})
    ending = "" if name in {"ADMINS", "ALLOWED_APPS"} else ", or * for all"
    assert said == (
        f"THREADHAND_{name} has a bad value ({text!r}): {wrong!r} is no id. Write ids such as {example} (Slack) or"
        f" 123456789012345678 (Discord){ending}; without this line, `threadhand setup` finds ids by name."
    )


def test_ids_of_both_platforms_are_accepted_in_every_list() -> None:
    settings = load_settings(
        {
            "THREADHAND_ALLOWED_WORKSPACES": "T024BE7LD,E0123ABC,123456789012345678,*",
            "THREADHAND_ALLOWED_CHANNELS": "C024BE91L,G0123ABC,D0123ABC,123456789012345678,*",
            "THREADHAND_ALLOWED_USERS": "U024BE7LH,W0123,T024BE7LD/U024BE7LH,1234/5678,USLACKBOT,*",
            "THREADHAND_ALLOWED_ROLES": "S0614TZR7,123456789012345678,*",
            "THREADHAND_ALLOWED_APPS": "A0123,B0123,123456789012345678",
            "THREADHAND_ADMINS": "U024BE7LH,T024BE7LD/U024BE7LH,123456789012345678",
        },
        None,
    )
    assert len(settings.allowed_users) == 6
    # everyone as an admin would mean no one: the program compares ids
    assert "'*' is no id" in problem({"THREADHAND_ADMINS": "*"})


def test_only_listed_apps_have_a_budget() -> None:
    assert load_settings({"THREADHAND_BUDGET_APP_DAY_USD": "3"}, None).budget.app == NO_LIMIT
    apps = {"THREADHAND_ALLOWED_APPS": "A0123"}
    assert load_settings(apps, None).budget.app == Limit(usd=5)
    changed = load_settings({**apps, "THREADHAND_BUDGET_APP_DAY_TOKENS": "9"}, None)
    assert changed.budget.app == Limit(tokens=9)


@pytest.mark.parametrize("name", ["LLM_BASE_URL", "SLACK_API_URL", "TAVILY_API_URL", "PUBLIC_URL"])
def test_a_password_in_the_address_of_a_service_is_refused_and_not_shown(name: str) -> None:
    said = problem({f"THREADHAND_{name}": "https://user:hunter2@models.example/v1"})
    assert said == (
        f"THREADHAND_{name} has a bad value: it must not contain a user name or password; the service's key has its"
        " own setting."
    )
    assert problem({f"THREADHAND_{name}": "user:hunter2@https://x"}).startswith(
        f"THREADHAND_{name} has a bad value: it must start"
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "sqlite:////data/threadhand.db"),
        ("sqlite:///x.db", "sqlite:///x.db"),
        ("postgres://u@h/d", "postgresql://u@h/d"),
        ("postgresql+asyncpg://u@h/d", "postgresql+asyncpg://u@h/d"),
    ],
)
def test_the_database_is_a_file_by_default(url: str, expected: str) -> None:
    settings = load_settings({"THREADHAND_DATABASE_URL": url, "THREADHAND_DATA_DIR": "/data"}, None)
    assert settings.storage_url == expected


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({}, "off"),
        ({"THREADHAND_SLACK_BOT_TOKEN": "xoxb-1", "THREADHAND_SLACK_APP_TOKEN": "xapp-1"}, "socket"),
        ({"THREADHAND_SLACK_BOT_TOKEN": "xoxb-1", "THREADHAND_SLACK_SIGNING_SECRET": "s"}, "http"),
    ],
)
def test_slack_is_connected_as_its_tokens_allow(environ: dict[str, str], mode: str) -> None:
    assert load_settings(environ, None).slack_mode == mode


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({"THREADHAND_SLACK_BOT_TOKEN": "xoxb-1"}, "THREADHAND_SLACK_APP_TOKEN"),
        ({"THREADHAND_SLACK_APP_TOKEN": "xapp-1"}, "THREADHAND_SLACK_BOT_TOKEN"),
    ],
)
def test_a_missing_slack_token_is_named(environ: dict[str, str], missing: str) -> None:
    settings = load_settings(environ, None)
    with pytest.raises(ConfigurationError, match=missing):
        _ = settings.slack_mode


def test_lines_that_are_no_settings_join_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLE_NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SAMPLE_API_KEY", "kept")
    monkeypatch.setenv("OTHER_API_KEY", "placeholder")
    monkeypatch.delenv("OTHER_API_KEY")
    env_file = tmp_path / ".env"
    env_file.write_text("SAMPLE_API_KEY=lost\nOTHER_API_KEY=new\nTHREADHAND_MODEL=m\n")
    assert load_process_settings(env_file).model == "m"
    assert (os.environ["SAMPLE_API_KEY"], os.environ["OTHER_API_KEY"]) == ("kept", "new")  # noqa: TID251 - what is tested
    assert "THREADHAND_MODEL" not in os.environ  # noqa: TID251 - what is tested


def test_settings_are_amended_with_the_same_checks() -> None:
    settings = load_settings({"THREADHAND_API_TOKEN": "one"}, None)
    changed = with_changes(settings, {"THREADHAND_MODEL": "m"})
    assert (changed.model, changed.api_token.get_secret_value()) == ("m", "one")
    with pytest.raises(ConfigurationError, match="xoxb-"):
        with_changes(settings, {"THREADHAND_SLACK_BOT_TOKEN": "wrong"})


def test_the_machine_does_not_leak_into_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADHAND_MODEL", "leak")
    assert load_settings({}, None).model == ""


def configured(**variables: str) -> Settings:
    return load_settings({f"THREADHAND_{name}": text for name, text in variables.items()}, None)


def test_spending_is_limited_unless_it_is_switched_off() -> None:
    budget = configured().budget
    assert budget.run == Limit(usd=2, tokens=1_000_000)
    assert (budget.person, budget.channel) == (Limit(usd=20), NO_LIMIT)
    assert budget.workspace == Limit(usd=100)
    off = configured(BUDGET_RUN_USD="none", BUDGET_USER_DAY_USD="0", BUDGET_WORKSPACE_DAY_USD="None")
    assert set(off.budget.limits.values()) == {NO_LIMIT}


def test_one_amount_of_a_limit_replaces_the_default_of_the_other() -> None:
    assert configured(BUDGET_RUN_USD="5").budget.run == Limit(usd=5)
    assert configured(BUDGET_RUN_TOKENS="7").budget.run == Limit(tokens=7)
    both = configured(BUDGET_RUN_USD="5", BUDGET_RUN_TOKENS="7")
    assert both.budget.run == Limit(usd=5, tokens=7)
    assert configured(PRICE_INPUT_PER_MILLION_USD="0").budget.counts_unpriced is False


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("https://x.org", "write x.org"),
        ("http://x.org/path", "write x.org"),
        ("example.com:443", "write example.com"),
        ("example.com/path", "write example.com"),
        ("2001:db8::/32", "IPv4"),
        ("2001:db8::1", "IPv4"),
        ("192.0.2.1/24", "write 192.0.2.0/24"),
        ("192.0.2.1:80", "write 192.0.2.1/32"),
        ("exa mple", "write a name"),
        ("*.*.org", "write a name"),
    ],
)
def test_an_egress_entry_that_modal_would_ignore_is_refused(written: str, right: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(right)):
        load_settings({"THREADHAND_MODAL_EGRESS": written}, None)


def test_egress_entries_reach_modal_in_its_form() -> None:
    written = "example.com, *.example.org, 192.0.2.0/24, 198.51.100.7"
    settings = load_settings({"THREADHAND_MODAL_EGRESS": written}, None)
    assert settings.modal_egress == ("example.com", "*.example.org", "192.0.2.0/24", "198.51.100.7/32")


PLAIN = {"THREADHAND_DATA_DIR": "/nowhere"}


def test_places_that_may_be_fetched_from_are_addresses_with_ports() -> None:
    allowed = {"THREADHAND_FETCH_ALLOW": "127.0.0.1:8080, [::1]:9000"}
    guard = build_web_services(load_settings({**PLAIN, **allowed}, None)).guard
    assert guard.allowed == {("127.0.0.1", 8080), ("::1", 9000)}
    assert build_web_services(load_settings(PLAIN, None)).guard.allowed == frozenset()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("FETCH_ALLOW", text) for text in ("localhost:80", "127.0.0.1", "127.0.0.1:", "10.0.0.0/8:80", "*")),
        *(("EXPOSE_DOMAIN", text) for text in ("https://apps.example.org", "apps.example.org/x", "a b", "x:y")),
    ],
)
def test_a_place_of_another_form_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"THREADHAND_{name}"):
        load_settings({**PLAIN, f"THREADHAND_{name}": text}, None)


def test_every_key_is_a_secret() -> None:
    names = ("TAVILY_API_KEY", "FIRECRAWL_API_KEY", "RAPIDAPI_KEY", "IMAGE_API_KEY", "CLOUDFLARE_API_TOKEN")
    settings = load_settings({**PLAIN, **{f"THREADHAND_{name}": f"secret-{name}" for name in names}}, None)
    assert {f"secret-{name}" for name in names} <= set(settings_secrets(settings))
    shown = repr(settings) + repr(build_web_services(settings))
    assert "secret-" not in shown
