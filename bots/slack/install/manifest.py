"""The app manifest, to paste into api.slack.com/apps."""

import yaml

from bots.slack.events.transports import EVENTS_PATH
from core.domain.messages import JsonObject

REDIRECT_PATH = "/slack/oauth_redirect"
BOT_SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "channels:read",
    "chat:write",
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
BOT_EVENTS = (
    "agent_session_stopped",
    "app_home_opened",
    "app_mention",
    "app_uninstalled",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "tokens_revoked",
)
ORGANISATION_EVENTS = ("team_access_revoked",)
"""Additional events for an app that organisations install."""
DESCRIPTION = "A general AI agent that lives in chat threads."


def build_manifest(
    *, public_url: str | None = None, name: str = "Threadhand", for_organisations: bool = False
) -> JsonObject:
    """Returns the manifest for Socket Mode or, with a public https URL, for HTTP mode."""
    heard = (*BOT_EVENTS, *ORGANISATION_EVENTS) if for_organisations else BOT_EVENTS
    events: JsonObject = {"bot_events": list(heard)}
    interactivity: JsonObject = {"is_enabled": True}
    if public_url:
        request_url = public_url.rstrip("/") + EVENTS_PATH
        events["request_url"] = request_url
        interactivity["request_url"] = request_url
    oauth: JsonObject = {"scopes": {"bot": list(BOT_SCOPES)}}
    if public_url:
        oauth["redirect_urls"] = [public_url.rstrip("/") + REDIRECT_PATH]
    return {
        "display_information": {"name": name, "description": DESCRIPTION},
        "features": {
            "agent_view": {"agent_description": DESCRIPTION},
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
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
    """Returns the manifest as YAML."""
    told = build_manifest(public_url=public_url, name=name, for_organisations=for_organisations)
    return yaml.safe_dump(told, sort_keys=False)
