"""Events that tell of a workspace, or an organisation, which took the bot away."""

from collections.abc import Awaitable, Callable, Sequence

from bots.slack.events.origin import Origin
from bots.slack.events.payload import strings, text
from bots.slack.workspaces import Team, Teams
from core.domain.messages import JsonObject

Leave = Callable[[str], Awaitable[None]]
"""Told the workspace, or the organisation."""
_KINDS = frozenset({"app_uninstalled", "team_access_revoked", "tokens_revoked"})


def is_farewell(event: JsonObject) -> bool:
    """Whether the event may end an installation."""
    return text(event, "type") in _KINDS


async def part(event: JsonObject, origin: Origin, teams: Teams, leave: Leave) -> None:
    """Lets everybody leave whose installation ends with the event. Raises StorageUnavailable.

    Slack tells it more than once, in any order: what is over already is left out. What ends for one workspace ends
    nothing for another that the same organisation's installation serves.
    """
    for one in await _leaving(event, origin, teams):
        await leave(one)


async def _leaving(event: JsonObject, origin: Origin, teams: Teams) -> Sequence[str]:
    organisation_id = origin.organisation_id
    if text(event, "type") == "team_access_revoked":
        named = [(one, await teams.find(one)) for one in strings(event, "team_ids")]
        served = [(one, team) for one, team in named if team and team.is_organisations]
        # Slack does not always say which organisation it speaks of; a workspace belongs to one alone
        return [one for one, team in served if organisation_id in ("", team.installed_by)]
    place = origin.team_id or organisation_id
    team = await teams.find(place)
    if team is None or not _is_told_to(team, event):
        return ()
    is_whole = organisation_id != "" and team.installed_by == organisation_id
    return (organisation_id,) if is_whole else (place,)


def _is_told_to(team: Team, event: JsonObject) -> bool:
    """Of tokens only the bot's own counts; people's may be revoked, too."""
    if text(event, "type") == "app_uninstalled":
        return True
    return team.client.identity.user_id in strings(event, "tokens", "bot")
