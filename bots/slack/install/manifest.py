"""The app manifest, to paste into api.slack.com/apps."""

import yaml

from bots.inbound.commands.table import USAGE_HINT
from core.domain.json import JsonObject

ASK_MESSAGE = "ask_about_message"
ASK_ANYWHERE = "ask_anywhere"
"""The callback ids of the shortcuts and of the forms that they open."""
EVENTS_PATH = "/slack/events"
REDIRECT_PATH = "/slack/oauth_redirect"
BOT_SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "mpim:read",
    "reactions:read",
    "reactions:write",
    "usergroups:read",
    "users:read",
)
OPTIONAL_SCOPES = ("usergroups:read",)
"""Scopes in BOT_SCOPES that the bot can work without. Without them, user groups in an allowlist count as empty."""
BOT_EVENTS = (
    "agent_session_stopped",
    "app_home_opened",
    "app_mention",
    "app_uninstalled",
    "member_joined_channel",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "tokens_revoked",
)
ORGANISATION_EVENTS = ("team_access_revoked",)
"""Additional events for an app that organisations install."""
SUGGESTED_PROMPTS = (
    ("What can you do?", "What can you do here? Name three things that I could ask you for now."),
    ("Turn a table into a chart", "Ask me for a table, then draw its most important trend and explain it."),
    ("Research a question", "Ask me for a question, then research it on the web and name your sources."),
    ("Summarise a document", "Ask me for a document, then summarise it in five points with page numbers."),
)
"""Titles and messages of the prompts that Slack shows in an empty conversation. Slack takes at most four."""
SHORTCUTS = (
    ("message", ASK_MESSAGE, "Ask the agent about this message"),
    ("global", ASK_ANYWHERE, "Ask the agent in a direct message"),
)
SHORTCUT_NAME_MAX = 24
COMMAND = "/threadhand"
DESCRIPTION = "A general AI agent that lives in chat threads."


def build_manifest(
    *, public_url: str | None = None, name: str = "Threadhand", for_organisations: bool = False
) -> JsonObject:
    """Returns the manifest for Socket Mode or, with a public https URL, for HTTP mode."""
    heard = (*BOT_EVENTS, *ORGANISATION_EVENTS) if for_organisations else BOT_EVENTS
    events: JsonObject = {"bot_events": list(heard)}
    interactivity: JsonObject = {"is_enabled": True}
    command: JsonObject = {
        "command": COMMAND,
        "description": "Ask the agent something here, or see what it can do",
        "usage_hint": USAGE_HINT,
        "should_escape": True,
    }
    if public_url:
        request_url = public_url.rstrip("/") + EVENTS_PATH
        events["request_url"] = request_url
        interactivity["request_url"] = command["url"] = request_url
    # optional scopes are listed under both names
    scopes: JsonObject = {"bot": list(BOT_SCOPES), "bot_optional": list(OPTIONAL_SCOPES)}
    oauth: JsonObject = {"scopes": scopes}
    if public_url:
        oauth["redirect_urls"] = [public_url.rstrip("/") + REDIRECT_PATH]
    return {
        "display_information": {"name": name, "description": DESCRIPTION},
        "features": {
            "agent_view": {
                "agent_description": DESCRIPTION,
                "suggested_prompts": [{"title": title, "message": message} for title, message in SUGGESTED_PROMPTS],
            },
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "shortcuts": [
                {
                    "name": f"Ask {name}"[:SHORTCUT_NAME_MAX],
                    "type": kind,
                    "callback_id": callback_id,
                    "description": description,
                }
                for kind, callback_id, description in SHORTCUTS
            ],
            "slash_commands": [command],
            "bot_user": {"display_name": name.lower(), "always_online": True},
        },
        "oauth_config": oauth,
        "settings": {
            "event_subscriptions": events,
            "interactivity": interactivity,
            "org_deploy_enabled": for_organisations,
            "socket_mode_enabled": not public_url,
            "token_rotation_enabled": False,
        },
    }


def build_manifest_yaml(
    *, public_url: str | None = None, name: str = "Threadhand", for_organisations: bool = False
) -> str:
    told = build_manifest(public_url=public_url, name=name, for_organisations=for_organisations)
    return yaml.safe_dump(told, sort_keys=False)
