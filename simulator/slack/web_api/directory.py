"""auth.test, auth.revoke, team.info, bots.info, usergroups.users.list and users.*."""

from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.shapes import user_form
from simulator.slack.web_api.call import Call, Method, paged


def test_auth(call: Call) -> Payload:
    workspace, organisation = call.workspace, call.workspace.organisation
    return {
        "url": f"{workspace.origin}/",
        "team": workspace.settings.workspace_name,
        "user": workspace.bot.name,
        "team_id": workspace.team_id,
        "user_id": workspace.bot.user_id,
        "bot_id": workspace.bot_id,
        **({"enterprise_id": organisation.organisation_id} if organisation is not None else {}),
        "is_enterprise_install": False,
    }


def team_info(call: Call) -> Payload:
    workspace = call.workspace
    if call.text("team", workspace.team_id) != workspace.team_id:
        raise Refused("team_not_found")
    name = workspace.settings.workspace_name
    return {
        "team": {
            "id": workspace.team_id,
            "name": name,
            "domain": name,
            "email_domain": "",
            "url": f"{workspace.origin}/",
            "icon": {"image_default": True},
        }
    }


def bot_info(call: Call) -> Payload:
    workspace = call.workspace
    if call.text("bot", workspace.bot_id) != workspace.bot_id:
        raise Refused("bot_not_found")
    return {
        "bot": {
            "id": workspace.bot_id,
            "deleted": False,
            "name": workspace.bot.name,
            "updated": 0,
            "app_id": workspace.app_id,
            "user_id": workspace.bot.user_id,
            "icons": {},
        }
    }


def user_info(call: Call) -> Payload:
    member = call.workspace.members.get(call.text("user"))
    if member is None:
        raise Refused("user_not_found")
    return {"user": user_form(call.workspace, member)}


def list_users(call: Call) -> Payload:
    members = list(call.workspace.members.values())
    page, cursor = paged(call, members)
    return {
        "members": [user_form(call.workspace, member) for member in page],
        "response_metadata": {"next_cursor": cursor},
    }


def list_group(call: Call) -> Payload:
    users = call.workspace.user_groups.get(call.text("usergroup"))
    if users is None:
        raise Refused("no_such_subteam")
    return {"users": list(users)}


def revoke(call: Call) -> Payload:
    """The token of the call stops to work."""
    if not call.flag("test"):
        call.platform.tenants.withdraw(call.workspace)
    return {"revoked": not call.flag("test")}


METHODS = {
    "auth.revoke": Method(run=revoke, tier="t3"),
    "auth.test": Method(run=test_auth, tier="special"),
    "bots.info": Method(run=bot_info, tier="t3", scopes=("users:read",)),
    "team.info": Method(run=team_info, tier="t3", scopes=("team:read",)),
    "usergroups.users.list": Method(run=list_group, tier="t2", scopes=("usergroups:read",), required=("usergroup",)),
    "users.info": Method(run=user_info, tier="t4", scopes=("users:read",), required=("user",)),
    "users.list": Method(run=list_users, tier="t2", scopes=("users:read",)),
}
