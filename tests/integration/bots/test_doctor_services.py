"""The doctor at simulated services: each fault is one line, with the command or link that mends it."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bots.settings import load_process_settings
from bots.setup.doctor import find_late_problems, run_checks
from bots.setup.findings import Finding, print_findings
from bots.setup.service_checks import DISCORD_PERMISSIONS
from bots.slack.install.manifest import BOT_SCOPES, OPTIONAL_SCOPES
from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator
from tests.fakes.model_endpoint import ModelEndpoint, model_endpoint
from tests.fakes.web_service import fake_web_service, refusal, says
from tests.support.settings import no_settings as no_settings

DISCORD_TOKEN = "MTAwMQ.simulated.discord-token"
HOUR = 3600.0


@dataclass
class Services:
    """A Slack, a Discord and a model endpoint, and the settings that lead to them."""

    slack: SlackSimulator
    discord: DiscordSimulator
    model: ModelEndpoint
    folder: Path

    async def findings(self, *, is_offline: bool = False, **changes: str) -> list[Finding]:
        settings = {
            "DATA_DIR": str(self.folder / "data"),
            "SANDBOX": "none",
            "HTTP_PORT": "0",
            "MODEL": "small",
            "LLM_BASE_URL": self.model.base_url,
            "LLM_API_KEY": self.model.key,
            "SLACK_BOT_TOKEN": self.slack.settings.bot_token,
            "SLACK_APP_TOKEN": self.slack.settings.app_token,
            "SLACK_API_URL": self.slack.api_url.rstrip("/"),
            "DISCORD_TOKEN": DISCORD_TOKEN,
            "DISCORD_API_URL": self.discord.api_url,
            "ALLOWED_WORKSPACES": "*",
            **changes,
        }
        file = self.folder / ".env"
        file.write_text("".join(f"THREADHAND_{name}={text}\n" for name, text in settings.items()))
        findings = list(await run_checks(file, is_offline=is_offline))
        assert [one for one in findings if one.state == "fail" and not one.remedy] == []
        return findings

    async def found(self, subject: str, **changes: str) -> list[str]:
        return [str(one) for one in await self.findings(**changes) if one.subject == subject]

    async def failed(self, **changes: str) -> str:
        """The only failure, as its line."""
        (line,) = (str(one) for one in await self.findings(**changes) if one.state == "fail")
        return line


@pytest.fixture
async def services(tmp_path: Path) -> AsyncGenerator[Services, None]:
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(SlackSimulator())
        discord = await stack.enter_async_context(DiscordSimulator(token=DISCORD_TOKEN))
        model = await stack.enter_async_context(model_endpoint())
        yield Services(slack, discord, model, tmp_path)


async def test_services_that_work_are_named_with_what_they_are(services: Services) -> None:
    findings = await services.findings()
    assert [one for one in findings if one.state == "fail"] == []
    lines = [str(one) for one in findings]
    count = len(BOT_SCOPES)
    assert (
        f"ok    slack     knows the bot as threadhand in simulated ({count} of {count} scopes, Socket Mode)." in lines
    )
    assert "ok    discord   knows the bot as threadhand in 1 server: Simulated server." in lines
    assert "ok    model     small answers and accepts tools." in lines
    assert (
        "note  window    The context window of small has 41,000 tokens, a size that is assumed, because the model is"
        " unknown. Set THREADHAND_CONTEXT_TOKENS to its real size." in lines
    )
    assert "ok    clock     agrees with the services." in lines


async def test_missing_scopes_are_counted_and_named(services: Services) -> None:
    services.slack.configure(replace(services.slack.settings, scopes=("chat:write", "users:read")))
    line = await services.failed()
    assert f"threadhand in simulated has 2 of {len(BOT_SCOPES)} scopes; missing: app_men" in line
    assert "`threadhand slack manifest` under App Manifest at https://api.slack.com/apps" in line
    assert "Reinstall to Workspace" in line
    scopes = tuple(one for one in BOT_SCOPES if one not in OPTIONAL_SCOPES)
    services.slack.configure(replace(services.slack.settings, scopes=scopes))
    (line,) = await services.found("slack")
    assert line.startswith("note  slack     threadhand in simulated has 18 of 19 scopes; missing: usergr")
    assert "usergroups:read, which is optional. Paste the output of" in line


async def test_each_slack_token_is_tried(services: Services) -> None:
    line = await services.failed(SLACK_APP_TOKEN="xapp-1-A0OTHER-1-unknown")
    assert "refuses the app token: invalid_auth." in line
    assert "https://api.slack.com/apps/A0OTHER" in line
    line = await services.failed(SLACK_BOT_TOKEN="xoxb-nonsense")
    assert "refuses the bot token: invalid_auth." in line


async def test_a_missing_intent_is_told_with_its_page(services: Services) -> None:
    services.discord.settings.has_message_content_intent = False
    line = await services.failed()
    assert line == (
        "fail  discord   the Message Content intent is switched off. Switch it on at"
        " https://discord.com/developers/applications/1001/bot and save."
    )


async def test_missing_permissions_are_named_with_the_invitation(services: Services) -> None:
    services.discord.settings.bot_permissions &= ~(1 << 38) & ~(1 << 3)
    line = await services.failed()
    assert "in Simulated server the bot lacks Send Messages in Threads." in line
    wanted = sum(DISCORD_PERMISSIONS.values())
    assert f"client_id=1001&scope=bot%20applications.commands&permissions={wanted}&guild" in line
    # an administrator may do everything
    services.discord.settings.bot_permissions = 1 << 3
    assert (await services.found("discord"))[0].startswith("ok ")
    # nobody may talk to it in that server anyway
    services.discord.settings.bot_permissions = 0
    assert (await services.found("discord", ALLOWED_WORKSPACES="42"))[0].startswith("ok ")


async def test_an_allowed_channel_that_overrides_permissions_is_named(services: Services) -> None:
    settings = services.discord.settings
    settings.bot_permissions &= ~(1 << 3)
    denied = {"id": "3001", "type": 0, "allow": "0", "deny": str(1 << 11 | 1 << 35)}
    settings.channel_overwrites["4001"] = [denied]
    line = await services.failed(ALLOWED_CHANNELS="4001")
    assert "in the channel general the bot lacks Send Messages, Create Public Threads." in line
    # what the bot itself is allowed counts more than what everyone is denied
    own = {"id": "1001", "type": 1, "allow": str(1 << 11 | 1 << 35), "deny": "0"}
    settings.channel_overwrites["4001"] = [own, denied]
    assert (await services.found("discord", ALLOWED_CHANNELS="4001"))[0].startswith("ok ")
    settings.hidden_channels.add("4001")
    line = await services.failed(ALLOWED_CHANNELS="4001")
    assert "cannot see the allowed channel 4001 (status 403)." in line


async def test_a_model_that_the_endpoint_does_not_have_is_told_with_those_it_has(services: Services) -> None:
    line = await services.failed(MODEL="nonsense")
    assert line.endswith("/v1 does not have nonsense. Set THREADHAND_MODEL to one that it has: large, small.")
    line = await services.failed(LLM_API_KEY="sk-nonsense-key")
    assert "refuses the key of small. Correct THREADHAND_LLM_API_KEY" in line
    assert "sk-nonsense-key" not in line
    assert services.model.requests == []


async def test_a_service_that_cuts_long_requests_is_found(services: Services) -> None:
    services.model.cuts = True
    (found,) = [one for one in await services.findings() if one.subject == "window"]
    assert found.state == "fail"
    assert found.fact == f"{services.model.base_url} cuts long requests to small."
    assert "num_ctx" in found.remedy


@pytest.mark.parametrize(("seconds", "word"), [(HOUR, "behind"), (-HOUR, "ahead of")])
async def test_a_wrong_clock_is_told(services: Services, seconds: float, word: str) -> None:
    services.slack.configure(replace(services.slack.settings, clock_seconds=seconds))
    services.discord.settings.clock_seconds = seconds
    line = await services.failed(MODEL="openai/small", LLM_BASE_URL=services.model.base_url)
    assert line.startswith("fail  model")  # the model endpoint's clock agrees, which is enough
    lines = await services.found("clock")
    assert lines == [f"fail  clock     is 60 min {word} the services, which then refuse requests."
                     " Set it: `sudo timedatectl set-ntp true`."]  # fmt: skip


async def test_allowed_slack_channels_are_looked_at(services: Services) -> None:
    workspace = services.slack.workspace
    (general,) = [one for one in workspace.channels.values() if one.name == "general"]
    ids = f"*,4001,{general.channel_id}"
    lines = await services.found("slack", ALLOWED_CHANNELS=ids)
    assert [line[:5] for line in lines] == ["ok   "]
    line = await services.failed(ALLOWED_CHANNELS=f"{ids},C0NOTTHERE")
    assert line == (
        "fail  slack     the bot cannot see the allowed channel C0NOTTHERE (channel_not_found). Write"
        " `/invite @threadhand` there, or correct THREADHAND_ALLOWED_CHANNELS."
    )
    del general.members[workspace.bot.user_id]
    lines = await services.found("slack", ALLOWED_CHANNELS=ids)
    assert lines[1] == (
        "note  slack     the bot is not in the allowed channel #general. Write `/invite @threadhand` there."
    )
    general.is_archived = True
    line = await services.failed(ALLOWED_CHANNELS=ids)
    assert f"the allowed channel #general is archived. Take {general.channel_id} out of" in line


@pytest.mark.parametrize(("call", "name"), [("GET /users/@me", "Discord"), ("auth.test", "Slack")])
async def test_a_rate_limit_says_nothing_about_the_token_and_permissions(
    services: Services, call: str, name: str
) -> None:
    platform = services.discord if name == "Discord" else services.slack
    platform.misbehave("rate_limit", method=call, seconds=1)
    assert [str(one) for one in await services.findings(ALLOWED_CHANNELS="4001") if one.state == "fail"] == []
    platform.misbehave("rate_limit", method=call, seconds=1, times=9)
    assert f"{name} does not answer." in await services.failed(ALLOWED_CHANNELS="4001")


async def test_keys_of_web_services_are_tried(services: Services) -> None:
    async with fake_web_service([]) as web:
        web.faults["/usage"] = refusal(401)
        web.faults["/credit-usage"] = says(b"{}")
        web.faults["/verify"] = refusal(403)
        lines = await services.found(
            "outside",
            TAVILY_API_KEY="t",
            TAVILY_API_URL=web.url,
            FIRECRAWL_API_KEY="f",
            FIRECRAWL_API_URL=web.url,
            CLOUDFLARE_API_TOKEN="c",
            CLOUDFLARE_API_URL=web.url,
        )
    assert lines[1:] == [
        "fail  outside   127.0.0.1 refuses the key. Correct THREADHAND_TAVILY_API_KEY.",
        "ok    outside   127.0.0.1 accepts the key.",
        "fail  outside   127.0.0.1 refuses the key. Correct THREADHAND_CLOUDFLARE_API_TOKEN.",
    ]
    # no line praises a service whose key is refused
    assert lines[0].startswith("note  outside   can do more. For more set THREADHAND_RAPIDAPI_KEY")


async def test_the_public_address_is_fetched(services: Services) -> None:
    async with fake_web_service([]) as web:
        (line,) = await services.found("public", PUBLIC_URL=web.url)
        assert line.startswith("fail  public")
        assert "status 404, and is not Threadhand" in line
        web.faults["/healthz"] = says(b'{"status": "ok"}')
        (line,) = await services.found("public", PUBLIC_URL=web.url)
        assert line == f"ok    public    {web.url} leads to Threadhand."
    (line,) = await services.found("public", PUBLIC_URL=web.url)
    assert line.startswith("note  public")


async def test_hostile_answers_are_no_reason_to_fail(services: Services) -> None:
    """A proxy may answer anything: lists for objects, numbers for texts, megabytes, no JSON."""
    for body in (b"[]", b'{"ok": 1}', b"<html>", b"x" * 5_000_000, b'{"ok": true, "team": [1]}'):
        async with fake_web_service([]) as web:
            web.faults[""] = says(body)
            findings = await services.findings(SLACK_API_URL=web.url, DISCORD_API_URL=web.url, LLM_BASE_URL=web.url)
        assert {"slack", "discord", "model"} <= {one.subject for one in findings}


async def test_a_program_that_has_started_is_told_what_will_fail(services: Services) -> None:
    async def late(**changes: str) -> tuple[str, ...]:
        await services.findings(is_offline=True, **changes)
        return await find_late_problems(load_process_settings(services.folder / ".env"))

    assert await late() == ()
    assert services.model.requests == []
    (dead,) = await late(LLM_API_KEY="sk-dead")
    assert dead.startswith("Model: http://127.0.0.1:")
    assert dead.endswith("refuses the key of small. Correct THREADHAND_LLM_API_KEY or the key of its provider.")
    (unlisted,) = await late(FALLBACK_MODELS="nonsense")
    assert "does not list nonsense, which may work all the same. `threadhand doctor`" in unlisted
    assert services.model.requests == []
    services.discord.settings.bot_permissions &= ~(1 << 38) & ~(1 << 3)
    (lacking,) = await late()
    assert lacking.startswith("Discord: in Simulated server the bot lacks Send Messages in Threads")
    assert "&permissions=" in lacking
    gone = {"DISCORD_API_URL": "http://127.0.0.1:9", "LLM_BASE_URL": "http://127.0.0.1:9"}
    assert await late(**gone) == ()


async def test_the_image_model_is_looked_up_and_data_keys_are_said_to_be_untried(services: Services) -> None:
    image = {"IMAGE_API_URL": services.model.base_url, "IMAGE_API_KEY": services.model.key}
    lines = await services.found("outside", RAPIDAPI_KEY="r", IMAGE_MODEL="openai/small", **image)
    assert lines[1:] == [
        "note  outside   the key of RapidAPI is not tried, because every call counts against its plan. Ask the agent"
        " for data of a provider.",
        "ok    outside   the image model openai/small is not tried, because pictures cost money; its provider lists"
        " it.",
    ]
    line = await services.failed(IMAGE_MODEL="openai/nonsense", **image)
    assert "openai/nonsense is not in its provider's list of models. Correct THREADHAND_IM" in line
    line = await services.failed(IMAGE_MODEL="openai/small", **{**image, "IMAGE_API_KEY": "sk-bad"})
    assert "the key of the image model openai/small is refused. Correct THREADHAND_IM" in line
    assert "sk-bad" not in line
    # the key of the language model's endpoint is sent nowhere else
    lines = await services.found("outside", IMAGE_MODEL="other/small")
    assert "other/small is not tried, because pictures cost money; its provider does not" in lines[1]


async def test_names_in_place_of_ids_are_refused_before_any_call(services: Services) -> None:
    findings = await services.findings(ALLOWED_CHANNELS="#general", ADMINS="bob")
    failed = [one for one in findings if one.state == "fail"]
    assert [one.subject for one in failed] == ["settings", "settings"]
    assert "'#general' is no id. Write ids such as C0123ABCD (Slack)" in failed[0].fact
    line = await services.failed(CHANNEL_FOLLOW_MODES="#general=mention")
    assert "THREADHAND_CHANNEL_FOLLOW_MODES has a bad value ('#general=mention')" in line
    line = await services.failed(CHANNEL_FOLLOW_MODES="C0123=always")
    assert "for C0123: the modes are follow, mention and quiet. Correct it in .env." in line


async def test_findings_are_printed_as_json(services: Services, capsys: pytest.CaptureFixture[str]) -> None:
    code = print_findings(await services.findings(MODEL="nonsense"), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (code, told["ok"]) == (1, False)
    (failed,) = (one for one in told["findings"] if one["state"] == "fail")
    assert failed["subject"] == "model"
    assert failed["remedy"].startswith("Set THREADHAND_MODEL")


async def test_a_model_that_takes_no_tools_is_asked_without_them_as_in_runs(services: Services) -> None:
    services.model.has_tools = False
    assert "small answers and accepts tools written as text." in " ".join(await services.found("model"))
    assert not any(request.get("tools") for request in services.model.requests)
