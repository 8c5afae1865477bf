"""Careful reading of JSON that came from outside: a missing or ill-typed field reads as empty."""

from dataclasses import dataclass

from pydantic import JsonValue

from core.domain.messages import JsonObject


def get_text(source: JsonObject, *path: str) -> str:
    """The string at the path, or ""."""
    value = _at(source, path)
    return value if isinstance(value, str) else ""


def get_int(source: JsonObject, *path: str) -> int | None:
    """The whole number at the path, or None."""
    value = _at(source, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def get_object(source: JsonObject, *path: str) -> JsonObject:
    """The object at the path, or {}."""
    value = _at(source, path)
    return value if isinstance(value, dict) else {}


def get_objects(source: JsonObject, *path: str) -> list[JsonObject]:
    """The objects of the list at the path; whatever else is in it is left out."""
    value = _at(source, path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def get_strings(source: JsonObject, *path: str) -> list[str]:
    """The strings of the list at the path; whatever else is in it is left out."""
    value = _at(source, path)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _at(source: JsonObject, path: tuple[str, ...]) -> JsonValue:
    value: JsonValue = source
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


_TEAM, _ORGANISATION = "T", "E"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """`team_id` is empty in what concerns an organisation as a whole, `organisation_id` in what a workspace's own
    installation received."""

    team_id: str
    organisation_id: str


def parse_origin(body: JsonObject, team_id: str) -> Origin:
    """`team_id` is the workspace that Bolt reads out of the payload. In those of an organisation's installation it may
    be missing, or be somebody's home: of a button pressed the message tells where it stands."""
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
    return Origin(team_id=workspace, organisation_id=organisation)


def is_organisation_install(told: JsonObject) -> bool:
    """Whether Slack says of it that an organisation has installed the app; commands say it in words."""
    return told.get("is_enterprise_install") in (True, "true")


def get_organisation_id(answer: JsonObject) -> str:
    """The organisation that an answer of Slack's OAuth names, or ""."""
    return get_text(get_object(answer, "enterprise"), "id")


def _first(ids: "tuple[str, ...] | list[str]", letter: str) -> str:
    return next((one for one in ids if one.startswith(letter)), "")
