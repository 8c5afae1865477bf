"""Who is in a simulated workspace, and as what."""

from dataclasses import dataclass

from simulator.slack.events.payloads import Payload
from simulator.slack.organisation import Organisation


@dataclass(slots=True, kw_only=True)
class Member:
    """May be changed at any time. `guest`: a multi-channel or a single-channel one. `home_team`: of somebody who comes
    by a shared channel, and belongs to another workspace."""

    user_id: str
    name: str
    is_bot: bool = False
    guest: str = ""  # "", "multi" or "single"
    home_team: str = ""
    time_zone: str = "Etc/UTC"


def standing_form(member: Member, team_id: str, organisation: Organisation | None = None) -> Payload:
    """What a `user` object says of a person's place. Slack names `is_stranger` for people of other workspaces alone,
    and it is false for those whom a shared channel shows."""
    form: Payload = {
        "team_id": home_of(member, team_id, organisation),
        "is_admin": False,
        "is_owner": False,
        "is_restricted": member.guest != "",
        "is_ultra_restricted": member.guest == "single",
    }
    if organisation is not None:
        form["enterprise_user"] = organisation.standing(member.user_id)
    return {**form, "is_stranger": False} if member.home_team else form


def home_of(member: Member, team_id: str, organisation: Organisation | None) -> str:
    """The workspace that the person belongs to first."""
    if organisation is not None and not member.home_team:
        return organisation.places[member.user_id][0]
    return member.home_team or team_id
