"""Where a payload comes from: the workspace, and the organisation whose installation of the bot received it."""

from dataclasses import dataclass

from bots.slack.events.payload import child, children, text
from core.domain.messages import JsonObject

_TEAM, _ORGANISATION = "T", "E"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """`team_id` is empty in what concerns an organisation as a whole, `organisation_id` in what a workspace's own
    installation received."""

    team_id: str
    organisation_id: str


def origin_of(body: JsonObject, team_id: str) -> Origin:
    """`team_id` is the workspace that Bolt reads out of the payload. In those of an organisation's installation it may
    be missing, or be somebody's home: of a button pressed the message tells where it stands."""
    (authorization, *_) = children(body, "authorizations") or [{}]
    is_everywhere = is_organisations(authorization) or is_organisations(body)
    found = [text(body, "message", "team"), team_id] if is_everywhere else [team_id]
    found += [text(body, "context_team_id"), text(body, "team_id")]
    team = _first(found, _TEAM)
    names = (
        text(authorization, "enterprise_id"),
        text(body, "enterprise", "id"),
        text(body, "enterprise_id"),
        text(body, "context_enterprise_id"),
    )
    organisation = _first(names, _ORGANISATION) if is_everywhere or not team else ""
    return Origin(team_id=team, organisation_id=organisation)


def is_organisations(told: JsonObject) -> bool:
    """Whether Slack says of it that an organisation has installed the app; commands say it in words."""
    return told.get("is_enterprise_install") in (True, "true")


def organisation_in(answer: JsonObject) -> str:
    """The organisation that an answer of Slack's OAuth names, or ""."""
    return text(child(answer, "enterprise"), "id")


def _first(ids: "tuple[str, ...] | list[str]", letter: str) -> str:
    return next((one for one in ids if one.startswith(letter)), "")
