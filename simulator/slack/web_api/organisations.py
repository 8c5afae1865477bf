"""What the methods about a token itself answer to an organisation's: auth.test, auth.teams.list and auth.revoke."""

from collections.abc import Callable

from simulator.slack.events.payloads import Payload
from simulator.slack.organisation import Organisation
from simulator.slack.tenants import Tenants

Answer = Callable[[Tenants, Organisation, Payload], Payload]


def _test(tenants: Tenants, organisation: Organisation, arguments: Payload) -> Payload:
    workspace = tenants.workspaces[organisation.team_ids[0]]
    return {
        "url": f"{workspace.origin}/",
        "team": organisation.name,
        "user": workspace.bot.name,
        "team_id": organisation.organisation_id,
        "user_id": workspace.bot.user_id,
        "bot_id": workspace.bot_id,
        "enterprise_id": organisation.organisation_id,
        "is_enterprise_install": True,
    }


def _list_teams(tenants: Tenants, organisation: Organisation, arguments: Payload) -> Payload:
    teams = [{"id": one.team_id, "name": one.settings.workspace_name} for one in tenants.reached(organisation)]
    return {"teams": teams, "response_metadata": {"next_cursor": ""}}


def _revoke(tenants: Tenants, organisation: Organisation, arguments: Payload) -> Payload:
    is_trial = str(arguments.get("test", "")) in ("1", "true", "True")
    if not is_trial:
        organisation.token = ""
    return {"revoked": not is_trial}


ORGANISATION_METHODS: dict[str, Answer] = {"auth.revoke": _revoke, "auth.teams.list": _list_teams, "auth.test": _test}
