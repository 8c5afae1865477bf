"""Typed access to Slack's JSON payloads and their tenants. Fields that are missing or have the wrong type count as
empty."""

from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from core.domain.json import JsonObject

_TEAM, _ORGANISATION = "T", "E"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """The workspace and the organisation that a payload came from.

    `team_id` is empty if the payload concerns the whole organisation. `organisation_id` is empty if the workspace
    installed the app itself."""

    team_id: str
    organisation_id: str


def get_text(source: object, *path: str) -> str:
    """Returns the string at the path, or ""."""
    value = _at(source, path)
    return value if isinstance(value, str) else ""


def get_int(source: JsonObject, *path: str) -> int | None:
    """Returns the integer at the path, or None."""
    value = _at(source, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def get_object(source: object, *path: str) -> JsonObject:
    """Returns the object at the path, or {}."""
    value = _at(source, path)
    return value if isinstance(value, dict) else {}


def get_objects(source: JsonObject, *path: str) -> list[JsonObject]:
    """Returns the objects in the list at the path, and skips other items."""
    value = _at(source, path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def get_strings(source: JsonObject, *path: str) -> list[str]:
    """Returns the strings in the list at the path, and skips other items."""
    value = _at(source, path)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def find_channel(event: JsonObject) -> str:
    """Returns the id of an event's channel, or "". The event of a reaction has it in the item reacted to."""
    return get_text(event, "channel") or get_text(event, "item", "channel")


def _at(source: object, path: tuple[str, ...]) -> JsonValue:
    value = cast(JsonValue, source)
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def parse_tenant(body: JsonObject, team_id: str) -> Tenant:
    """Returns the tenant of a payload. `team_id` is the workspace that Bolt found in the payload.

    With an organisation-wide installation, Bolt's id may be empty or may be the user's home workspace, so the workspace
    of the clicked message takes precedence."""
    (authorization, *_) = get_objects(body, "authorizations") or [{}]
    is_everywhere = is_organisation_install(authorization) or is_organisation_install(body)
    found = [get_text(body, "message", "team"), team_id] if is_everywhere else [team_id]
    found += [get_text(body, "context_team_id"), get_text(body, "team_id")]
    workspace = _first(found, _TEAM)
    names = (
        get_text(authorization, "enterprise_id"),
        get_text(body, "enterprise", "id"),
        get_text(body, "enterprise_id"),
        get_text(body, "context_enterprise_id"),
    )
    organisation = _first(names, _ORGANISATION) if is_everywhere or not workspace else ""
    return Tenant(team_id=workspace, organisation_id=organisation)


def parse_sharing_team_ids(body: JsonObject) -> frozenset[str]:
    """Returns the ids of the workspaces that an event of a Slack Connect channel names, or none for other events.

    Slack delivers such an event for one or several of the installations that can see it. The installation whose bot is
    mentioned may not be the first, or not be among `authorizations` at all."""
    if body.get("is_ext_shared_channel") is not True:
        return frozenset()
    event = get_object(body, "event")
    found = [get_text(one, "team_id") for one in get_objects(body, "authorizations")]
    found += [get_text(body, name) for name in ("context_team_id", "team_id")]
    found += [get_text(event, name) for name in ("team", "user_team", "source_team")]
    return frozenset(one for one in found if one.startswith(_TEAM))


def is_organisation_install(payload: JsonObject) -> bool:
    """Whether Slack marks the object as an organisation-wide installation. In commands, the flag is a string."""
    return payload.get("is_enterprise_install") in (True, "true")


def _first(ids: "tuple[str, ...] | list[str]", letter: str) -> str:
    return next((one for one in ids if one.startswith(letter)), "")
