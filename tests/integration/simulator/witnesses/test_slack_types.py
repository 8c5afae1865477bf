"""What the simulated Slack and the bot say to each other, by the types of the npm packages @slack/types, @slack/bolt
and @slack/web-api, and the bot's blocks also by the models of slack_sdk."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.models.blocks import Block

from simulator.slack.web_api import METHODS
from simulator.slack.web_api.organisations import ORGANISATION_METHODS
from tests.integration.simulator.witnesses.recorded_payloads import SECONDS_MAX, check_recorded
from tests.support.published_types import PublishedTypes, build_schemas, without_nulls

pytestmark = pytest.mark.timeout(600)

SHAPES_MIN = 275
MESSAGES = {
    # by subtype
    "": "GenericMessageEvent",
    "bot_message": "BotMessageEvent",
    "channel_join": "ChannelJoinMessageEvent",
    "channel_leave": "ChannelLeaveMessageEvent",
    "file_share": "FileShareMessageEvent",
    "message_changed": "MessageChangedEvent",
    "message_deleted": "MessageDeletedEvent",
    "thread_broadcast": "ThreadBroadcastMessageEvent",
}
EVENTS = {
    "app_mention": "AppMentionEvent",
    "app_home_opened": "AppHomeOpenedEvent",
    "app_uninstalled": "AppUninstalledEvent",
    "team_access_granted": "TeamAccessGrantedEvent",
    "team_access_revoked": "TeamAccessRevokedEvent",
    "tokens_revoked": "TokensRevokedEvent",
    "reaction_added": "ReactionAddedEvent",
    "reaction_removed": "ReactionRemovedEvent",
    "member_joined_channel": "MemberJoinedChannelEvent",
    "assistant_thread_started": "AssistantThreadStartedEvent",
    "agent_session_stopped": "AgentSessionStoppedEvent",
    "agent_session_title_changed": "AgentSessionTitleChangedEvent",
}
BODIES = {
    "blocks": "T.KnownBlock[]",
    "attachments": "T.MessageAttachment[]",
    "view": "T.View",
    "chunks": "T.AnyChunk[]",
    "metadata": "T.MessageMetadata",
}
INTERACTIONS = {
    "block_actions": "BlockAction",
    "message_action": "MessageShortcut",
    "shortcut": "GlobalShortcut",
    "view_closed": "ViewClosedAction",
    "view_submission": "ViewSubmitAction",
}
OTHERS = {
    "event envelope": "Bolt.EnvelopedEvent",
    "interactive: acknowledgement": "Bolt.ViewResponseAction",
    "refusal": "Web.WebAPICallResult",
    "response_url: body": "Bolt.RespondArguments",
    "slash_commands": "Bolt.SlashCommand",
    "slash_commands: acknowledgement": "Bolt.RespondArguments",
}


@dataclass(frozen=True)
class SlackTypes:
    """`messages` are the types of events and blocks, `calls` those of the Web API and of interactions."""

    messages: PublishedTypes
    calls: PublishedTypes

    def check(self, kind: str, payload: Any) -> None:
        """Checks a payload by its kind, as the recorder names it. A kind without a known type is refused."""
        if kind == "events_api":
            event = payload["event"]
            name = f"{event['type']} {event.get('subtype', '')}".strip()
            self.messages.check(name, whole(event))
            self.calls.check("event envelope", payload, as_well=(of_no_organisation, of_some_team))
            return
        is_apps = kind.endswith((": arguments", ": body", ": acknowledgement"))
        readings = (with_form_values,) if is_apps else (of_no_organisation, *EXAMPLES)
        self.calls.check(payload["type"] if kind == "interactive" else kind, payload, as_well=readings)
        for name, value in find_bodies(payload):
            # without include_all_metadata, conversations.history answers only the type of the metadata
            if name != "metadata" or value.keys() != {"event_type"}:
                self.messages.check(name, value, as_well=() if is_apps else (without_nulls,))

    def report(self) -> str:
        return f"{self.messages.report()}\n{self.calls.report()}".strip()


@pytest.fixture(scope="module")
def published(packages: Path) -> SlackTypes:
    return build_slack_types(packages)


def build_slack_types(folder: Path) -> SlackTypes:
    types = {f"message {subtype}".strip(): f"T.{name}" for subtype, name in MESSAGES.items()}
    types |= {name: f"T.{written}" for name, written in EVENTS.items()}
    messages = build_schemas(folder, {"T": "@slack/types"}, types | BODIES)
    forbid_unknown_blocks(messages.definitions)
    forbid_unknown_blocks(messages.schemas)
    types = {name: f"Bolt.{written}" for name, written in INTERACTIONS.items()} | OTHERS
    for method in (*METHODS, *ORGANISATION_METHODS, "oauth.v2.access"):
        name = "".join(part[:1].upper() + part[1:] for part in method.split("."))
        types[f"{method}: arguments"] = f"Web.{name}Arguments"
        types[f"{method}: answer"] = f"Web.{name}Response"
    del types["oauth.v2.access: arguments"]  # the package names them otherwise
    modules = {"Bolt": "@slack/bolt/dist/types", "Web": "@slack/web-api"}
    return SlackTypes(messages, build_schemas(folder, modules, types))


@pytest.mark.timeout(SECONDS_MAX)
def test_slack_and_all_tests_say_what_the_types_allow(published: SlackTypes, tmp_path: Path) -> None:
    payloads = check_recorded(tmp_path, "slack", published.check, shapes_min=SHAPES_MIN)
    assert published.report() == ""
    sent = [payload for kind, payload in payloads if kind.endswith((": arguments", ": body", ": acknowledgement"))]
    blocks = [block for one in sent for block in find_blocks(one)]
    assert {"section", "plan", "actions", "input"} <= {block["type"] for block in blocks}
    for block in (one for one in blocks if one["type"] != "data_table"):  # slack_sdk has no model of it
        parsed = Block.parse(block)
        assert parsed is not None, f"slack_sdk knows no such block: {block}"
        parsed.validate_json()


def forbid_unknown_blocks(schema: object) -> None:
    """Any object with a type is a Block. Without this choice, only the known blocks are left."""
    if isinstance(schema, list):
        for one in schema:
            forbid_unknown_blocks(one)
    if isinstance(schema, dict):
        choices = schema.get("anyOf")
        if isinstance(choices, list):
            schema["anyOf"] = [one for one in choices if one != {"$ref": "#/definitions/Block"}]
        for one in schema.values():
            forbid_unknown_blocks(one)


def of_no_organisation(payload: object) -> object:
    """Outside an organisation, its id is null."""
    assert isinstance(payload, dict)
    return {name: one for name, one in payload.items() if one is not None}


def of_some_team(payload: object) -> object:
    """Events of a whole organisation are of no team."""
    assert isinstance(payload, dict)
    return {"team_id": "", **payload}


def without_bodies(value: object) -> object:
    """The payload without the blocks and so on, which have types of their own."""
    if isinstance(value, list):
        return [without_bodies(one) for one in value]
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if name == "view" or name not in BODIES}
        return {name: without_bodies(one) for name, one in kept.items()}
    return value


EXAMPLES = (without_nulls, without_bodies)
"""The types of answers and interactions are made of examples: they have no null, and not every block."""


def with_form_values(arguments: object) -> object:
    """The numbers and the truth values of a query or a form, where everything is text."""
    assert isinstance(arguments, dict)
    numbers = {name: int(arguments[name]) for name in ("limit", "length") if name in arguments}
    truths = {
        name: arguments[name] in ("1", "true", True)
        for name in ("full", "include_all_metadata", "inclusive", "exclude_archived", "include_disabled")
        if name in arguments
    }
    return {**arguments, **numbers, **truths}


def whole(event: dict[str, Any]) -> dict[str, Any]:
    """The event with the fields that Slack's documentation shows it without, although the types require them.

    These are the place of the inner messages (reference/events/message/message_changed), and the channels of the files
    (reference/events/message/file_share).
    """
    place = {name: event.get(name) for name in ("channel", "channel_type", "event_ts")}
    inner = {name for name in ("message", "previous_message") if name in event}
    filled = {**event, **{name: whole(place | event[name]) for name in inner}}
    if "files" in event:
        # a file of another organisation has its id alone (apis/slack-connect), and is left out here
        own = [file for file in event["files"] if file["mode"] != "file_access"]
        filled["files"] = [{"channels": None, "groups": None} | file for file in own]
    return filled


def find_bodies(value: object) -> Iterator[tuple[str, Any]]:
    """The outermost blocks, views and so on of a request or an answer."""
    if isinstance(value, list):
        for item in value:
            yield from find_bodies(item)
    if isinstance(value, dict):
        for name, item in value.items():
            if name in BODIES:
                yield name, item
            else:
                yield from find_bodies(item)


def find_blocks(body: object) -> Iterator[dict[str, Any]]:
    """The blocks of the messages and views of a request."""
    for name, value in find_bodies(body):
        if name in ("blocks", "view"):
            yield from value if name == "blocks" else value["blocks"]
