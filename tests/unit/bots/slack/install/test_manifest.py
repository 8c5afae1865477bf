"""The app manifest keeps Slack's limits, and asks for what the program uses."""

import json
import re
from typing import Any, cast
from urllib.parse import quote

import pytest

from bots.slack.install.manifest import BOT_SCOPES, OPTIONAL_SCOPES, build_manifest
from tests.paths import REPOSITORY

METHOD_SCOPES = {
    "chat.postMessage": "chat:write",
    "conversations.open": "im:write",
    "files.info": "files:read",
    "files.completeUploadExternal": "files:write",
    "reactions.add": "reactions:write",
    "usergroups.users.list": "usergroups:read",
    "users.info": "users:read",
}
"""Methods that the program calls, and the scope that Slack requires for each."""


@pytest.mark.parametrize("public_url", [None, "https://agent.example"])
def test_the_agent_view_keeps_the_limits_of_slack(public_url: str | None) -> None:
    manifest = cast(dict[str, Any], build_manifest(public_url=public_url))
    view = manifest["features"]["agent_view"]
    assert 1 <= len(view["suggested_prompts"]) <= 4
    for prompt in view["suggested_prompts"]:
        assert set(prompt) == {"title", "message"}
        assert prompt["title"]
        assert prompt["message"]
    assert len(manifest["display_information"]["name"]) <= 35
    assert len(manifest["display_information"]["description"]) <= 140


def test_an_optional_scope_is_listed_under_both_names() -> None:
    manifest = cast(dict[str, Any], build_manifest())
    scopes = manifest["oauth_config"]["scopes"]
    assert set(scopes["bot_optional"]) == set(OPTIONAL_SCOPES) < set(scopes["bot"])


def test_scopes_are_those_of_the_methods_that_are_called() -> None:
    folder = REPOSITORY / "bots" / "slack"
    source = "".join(path.read_text("utf-8") for path in sorted(folder.rglob("*.py")))
    for method, scope in METHOD_SCOPES.items():
        is_called = re.search(rf'"{re.escape(method)}"', source) is not None
        assert is_called == (scope in BOT_SCOPES), (method, scope)


def test_the_link_that_fills_the_manifest_in_stays_short() -> None:
    text = json.dumps(build_manifest(), separators=(",", ":"))
    assert len(quote(text)) < 6_000
