"""Whose installation of the app hears of something, as events and interactions tell it."""

import secrets
import time

from simulator.slack.events.payloads import Payload
from simulator.slack.organisation import Organisation
from simulator.slack.world import Workspace


def is_organisations(workspace: Workspace) -> bool:
    """Whether the app hears of the workspace by the installation of its organisation."""
    organisation = workspace.organisation
    return organisation is not None and organisation.serves(workspace.team_id)


def installation_form(workspace: Workspace) -> Payload:
    """As interactions tell it. Of an organisation's installation the platform does not tell the workspace."""
    organisation = workspace.organisation
    is_whole = is_organisations(workspace)
    team = {"id": workspace.team_id, "domain": workspace.settings.workspace_name}
    return {
        "team": None if is_whole else team,
        "enterprise": organisation.form() if organisation is not None else None,
        "is_enterprise_install": is_whole,
    }


def event_callback(workspace: Workspace, event: Payload) -> Payload:
    """The outer body of an event."""
    organisation = workspace.organisation
    organisation_id = organisation.organisation_id if organisation is not None else None
    is_whole = is_organisations(workspace)
    body: Payload = {
        "token": "simulated",
        "team_id": workspace.team_id,
        "context_team_id": workspace.team_id,
        "context_enterprise_id": organisation_id,
        "api_app_id": workspace.app_id,
        "event": event,
        "authorizations": [
            {
                "enterprise_id": organisation_id,
                "team_id": None if is_whole else workspace.team_id,
                "user_id": workspace.bot.user_id,
                "is_bot": True,
                "is_enterprise_install": is_whole,
            }
        ],
        "is_ext_shared_channel": False,
        "event_context": f"4-{secrets.token_hex(12)}",
        **_stamp(),
    }
    return {**body, "enterprise_id": organisation_id} if organisation_id else body


def organisation_callback(organisation: Organisation, app_id: str, event: Payload) -> Payload:
    """The outer body of an event about an organisation's installation as a whole."""
    return {
        "token": "simulated",
        "team_id": None,
        "enterprise_id": organisation.organisation_id,
        "api_app_id": app_id,
        "event": event,
        **_stamp(),
    }


def _stamp() -> Payload:
    return {"type": "event_callback", "event_id": f"Ev{secrets.token_hex(6).upper()}", "event_time": int(time.time())}
