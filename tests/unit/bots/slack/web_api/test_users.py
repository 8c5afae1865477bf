"""Who people are to us, by what users.info tells."""

import pytest

from bots.slack.web_api.users import parse_actor_context
from core.domain.actions import ActorContext
from core.domain.json import JsonObject


@pytest.mark.parametrize(
    ("user", "standing"),
    [
        ({"id": "U1", "team_id": "T1"}, ActorContext()),
        ({"id": "U1", "team_id": "T1", "is_restricted": True}, ActorContext(is_guest=True)),
        ({"id": "U1", "team_id": "T9"}, ActorContext(home_id="T9")),
        ({"id": "U1", "team_id": "T9", "enterprise_user": {"teams": ["T1"]}}, ActorContext()),
        ({"id": "U1", "team_id": "T9", "is_stranger": True}, ActorContext(home_id="T9")),
        ({"id": "U1", "name": "alice"}, ActorContext()),
        ({"id": "U1", "is_ultra_restricted": True}, ActorContext(is_guest=True)),
        ({"id": "U1", "is_stranger": True}, ActorContext(is_known=False)),
        ({}, ActorContext(is_known=False)),
    ],
)
def test_a_person_is_known_by_the_workspace_they_come_from(user: JsonObject, standing: ActorContext):
    assert parse_actor_context(user, "T1") == standing


def test_the_user_of_an_app_is_an_app():
    standing = parse_actor_context({"id": "U9", "team_id": "T1", "is_bot": True}, "T1")
    assert standing.app_ids == {"U9"}
    profile: JsonObject = {"api_app_id": "A9", "bot_id": "B9"}
    standing = parse_actor_context({"id": "U9", "is_bot": True, "profile": profile}, "T1")
    assert standing.app_ids == {"U9", "A9", "B9"}
