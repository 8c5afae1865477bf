"""apps.manifest.create: a new app from its manifest (docs.slack.dev/reference/methods/apps.manifest.create)."""

from simulator.slack.events.payloads import Payload, Refused, as_payload, as_texts
from simulator.slack.settings import APP_ID
from simulator.slack.web_api.call import Call, Method

NAME_CHARACTERS_MAX = 35
_PARTS = frozenset({"_metadata", "display_information", "features", "functions", "oauth_config", "settings"})


def create_app(call: Call) -> Payload:
    """The app has a client of its own, which installs nothing here."""
    manifest = as_payload(call.arguments.get("manifest"))
    problems = _problems(manifest) if manifest is not None else [("/", "Manifest is not a JSON object")]
    if problems:
        raise Refused(
            "invalid_manifest", errors=[{"message": message, "pointer": pointer} for pointer, message in problems]
        )
    return {
        "app_id": APP_ID,
        "credentials": {
            "client_id": "1.2",
            "client_secret": "simulated-client-secret",
            "verification_token": "simulated-verification",
            "signing_secret": call.workspace.settings.signing_secret,
        },
        "oauth_authorize_url": f"{call.workspace.origin}/oauth/v2/authorize?client_id=1.2",
    }


def _problems(manifest: Payload) -> list[tuple[str, str]]:
    found = [(f"/{name}", "Unknown field") for name in sorted(set(manifest) - _PARTS)]
    name = _part(manifest, "display_information").get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        found.append(("/display_information/name", f"Must have 1 to {NAME_CHARACTERS_MAX} characters"))
    settings = _part(manifest, "settings")
    scopes = as_texts(_part(manifest, "oauth_config", "scopes").get("bot"))
    features = _part(manifest, "features")
    if scopes and not _part(features, "bot_user"):
        found.append(("/features/bot_user", "Bot scopes require a bot user"))
    if features.get("slash_commands") and "commands" not in scopes:
        found.append(("/oauth_config/scopes/bot", "Slash commands require the scope commands"))
    if not settings.get("socket_mode_enabled"):
        events = _part(settings, "event_subscriptions")
        if events.get("bot_events") and not events.get("request_url"):
            text = "Event Subscription requires either Request URL or Socket Mode Enabled"
            found.append(("/settings/event_subscriptions", text))
        interactivity = _part(settings, "interactivity")
        if interactivity.get("is_enabled") and not interactivity.get("request_url"):
            found.append(("/settings/interactivity", "Interactivity requires a Request URL"))
    return found


def _part(payload: Payload, *names: str) -> Payload:
    for name in names:
        payload = as_payload(payload.get(name)) or {}
    return payload


METHODS = {"apps.manifest.create": Method(run=create_app, tier="t1", required=("manifest",), caller="configuration")}
