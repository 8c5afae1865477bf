"""Which workspace and organisation a payload comes from, in the shapes that Slack sends."""

import pytest

from bots.slack.events.bolt import handle_uninstall, is_uninstall_event
from bots.slack.events.payload_fields import Tenant, parse_tenant
from core.domain.json import JsonObject
from core.domain.messages import JsonValue
from tests.support.memory_tokens import MemoryTokens, access_of, teams_with


def authorized(team_id: str | None, *, is_whole: bool) -> list[JsonValue]:
    return [{"enterprise_id": "E1", "team_id": team_id, "is_enterprise_install": is_whole}]


def tenant(team_id: str, organisation_id: str = "") -> Tenant:
    return Tenant(team_id=team_id, organisation_id=organisation_id)


SHAPES: list[tuple[str, JsonObject, str, Tenant]] = [
    ("a workspace", {"team_id": "T1"}, "T1", tenant("T1")),
    ("a workspace in an organisation, with an installation of its own",
     {"team_id": "T1", "enterprise_id": "E1", "authorizations": authorized("T1", is_whole=False)}, "T1", tenant("T1")),
    ("an organisation's event without its workspace among the authorizations",
     {"team_id": "T1", "enterprise_id": "E1", "authorizations": authorized(None, is_whole=True)}, "",
     tenant("T1", "E1")),
    (
        "an organisation's event of a channel that another company shares",
        {
            "team_id": "T9",
            "context_team_id": "T1",
            "context_enterprise_id": "E1",
            "authorizations": authorized(None, is_whole=True),
        },
        "",
        tenant("T1", "E1"),
    ),
    ("the organisation's own id in the place of a workspace's",
     {"team_id": "T1", "authorizations": authorized("E1", is_whole=True)}, "E1", tenant("T1", "E1")),
    (
        "a shortcut, which says nothing but where somebody is at home",
        {
            "team": None,
            "enterprise": {"id": "E1", "name": "x"},
            "is_enterprise_install": True,
            "user": {"id": "W1", "team_id": "T1"},
        },
        "T1",
        tenant("T1", "E1"),
    ),
    (
        "a button, which stands in a message of another workspace than the person's",
        {
            "team": None,
            "enterprise": {"id": "E1"},
            "is_enterprise_install": True,
            "user": {"id": "W1", "team_id": "T1"},
            "message": {"team": "T2"},
        },
        "T1",
        tenant("T2", "E1"),
    ),
    ("a button of a workspace's own installation, whatever the message says",
     {"team": {"id": "T1"}, "enterprise": None, "message": {"team": "T2"}}, "T1", tenant("T1")),
    ("a command, which says so in words", {"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": "true"},
     "T1", tenant("T1", "E1")),
    ("the end of an organisation's installation", {"enterprise_id": "E1", "event": {"type": "app_uninstalled"}}, "",
     tenant("", "E1")),
    ("nonsense", {"authorizations": "x", "team_id": 5, "enterprise": [], "team": 1}, "", tenant("")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "team_id", "expected"), [shape[1:] for shape in SHAPES])
def test_a_payload_comes_from(body: JsonObject, team_id: str, expected: Tenant) -> None:
    assert parse_tenant(body, team_id) == expected


async def left_by(event: JsonObject, where: Tenant) -> list[str]:
    tokens = MemoryTokens({one: access_of(one, installed_by="E1") for one in ("T1", "T2", "E1")})
    tokens.known["T3"] = access_of("T3")
    tokens.unreadable.add("T4")
    teams, left = teams_with(tokens), list[str]()

    async def leave(one: str) -> None:
        left.append(one)

    assert is_uninstall_event(event)
    await handle_uninstall(event, where, teams, leave)
    await teams.close()
    return left


async def test_a_workspace_s_own_installation_does_not_end_with_its_organisation_s_access() -> None:
    event: JsonObject = {"type": "team_access_revoked", "team_ids": ["T4", "T1", "T3", "T9", 5]}
    assert await left_by(event, tenant("", "E1")) == ["T1"]
    assert await left_by(event, tenant("T123")) == ["T1"], "the organisation may be left out"
    assert await left_by(event, tenant("", "E2")) == []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (tenant("", "E1"), ["E1"]),
        (tenant("T1", "E1"), ["E1"]),
        (tenant("T1"), ["T1"]),
        (tenant("T3"), ["T3"]),
        (tenant("T9"), []),
        (tenant("", "E9"), []),
    ],
)
async def test_an_app_is_taken_away_where_it_was_installed(where: Tenant, expected: list[str]) -> None:
    assert await left_by({"type": "app_uninstalled"}, where) == expected
    assert await left_by({"type": "tokens_revoked", "tokens": {"bot": ["U0"]}}, where) == expected
    people: JsonObject = {"type": "tokens_revoked", "tokens": {"oauth": ["U0"], "bot": ["U5"]}}
    assert await left_by(people, where) == []
