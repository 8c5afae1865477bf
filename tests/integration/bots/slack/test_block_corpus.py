"""The stored examples of everything that the bot sends to Slack are complete, current, and accepted."""

import json
import re
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from scripts import live_slack
from simulator.slack import SlackSettings, SlackSimulator
from tests.paths import REPOSITORY

RENDERERS = REPOSITORY / "bots" / "slack" / "render"
NOT_BLOCKS = {"link", "text"}  # parts of lines


def stored() -> str:
    return live_slack.CORPUS.read_text("utf-8")


def test_the_corpus_is_what_the_bot_sends_now() -> None:
    built = json.loads(json.dumps(live_slack.build_corpus()))
    assert json.loads(stored()) == built, "run scripts/live-slack --write"


def test_the_corpus_holds_every_type_that_the_renderers_write() -> None:
    source = "".join(path.read_text("utf-8") for path in sorted(RENDERERS.glob("*.py")))
    written = set(re.findall(r'"type": "(\w+)"', source)) - NOT_BLOCKS
    assert written
    assert written <= set(re.findall(r'"type": "(\w+)"', stored()))


async def test_the_script_names_what_slack_refuses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with SlackSimulator(settings=SlackSettings(rate_scale=0)) as slack:
        client = AsyncWebClient(token=slack.settings.bot_token, base_url=f"{slack.api_url}/")
        assert await live_slack.validate_corpus(client, pause_seconds=0) == 0
        told = capsys.readouterr().out
        assert told.count(": ok\n") == len(json.loads(stored()))
        text = {"type": "plain_text", "text": "x" * 151}
        bad = {"too long": {"blocks": [{"type": "header", "text": text}]}}
        path = tmp_path / "blocks.json"
        path.write_text(json.dumps(bad), "utf-8")
        monkeypatch.setattr(live_slack, "CORPUS", path)
        assert await live_slack.validate_corpus(client, pause_seconds=0) == 1
        assert "too long: refused: invalid_blocks" in capsys.readouterr().out
