"""Workspaces that installed the bot, on each database."""

from dataclasses import replace

from core.domain.installations import Installation
from tests.contracts.stores import ADDRESS, ALICE, FAILED, Stores, accept, message
from tests.support.narrow import require

HERE = Installation(platform="slack", workspace_id="T1", sealed_token="sealed", facts={"bot_id": "B1"})


async def acts(stores: Stores) -> list[str]:
    found = await stores.audit.newest_entries(limit=20, platform="slack")
    return [one.action for one in reversed(found) if one.action.startswith("workspace")]


async def test_the_newest_installation_of_a_workspace_counts(stores: Stores) -> None:
    assert await stores.installations.find("slack", "T1") is None
    await stores.installations.save(HERE, by=ALICE)
    again = replace(HERE, sealed_token="other", facts={"bot_id": "B2"})
    await stores.installations.save(again, by=ALICE)
    assert await stores.installations.find("slack", "T1") == again
    assert await stores.installations.find("slack", "T2") is None
    assert await stores.installations.find("discord", "T1") is None
    assert await acts(stores) == ["workspace_joined", "workspace_joined"]


async def test_a_token_is_replaced_where_it_is_still_the_same(stores: Stores) -> None:
    await stores.installations.save(HERE, by=ALICE)
    assert await stores.installations.replace_sealed_token(HERE, "newer")
    assert not await stores.installations.replace_sealed_token(HERE, "too late")
    assert not await stores.installations.replace_sealed_token(replace(HERE, workspace_id="T2"), "x")
    assert await stores.installations.find("slack", "T1") == replace(HERE, sealed_token="newer")


async def test_who_leaves_takes_the_token_and_names_its_own_open_runs(stores: Stores) -> None:
    await stores.installations.save(HERE, by=ALICE)
    open_run = await stores.say("work")
    elsewhere = replace(message("work", key="k2"), address=replace(ADDRESS, workspace_id="T2", thread_key="9"))
    await stores.inbox.accept_action(elsewhere, accept)
    assert await stores.installations.leave_workspace("slack", "T1") == (open_run.run_id,)
    assert await stores.installations.find("slack", "T1") is None
    lease = require(await stores.claims.claim(open_run.run_id or "", "w1"))
    await stores.finish(lease, FAILED)
    assert await stores.installations.leave_workspace("slack", "T1") == ()
    assert await acts(stores) == ["workspace_joined", "workspace_left"]


ORGANISATION = replace(HERE, workspace_id="E1", sealed_token="of all")


async def test_a_workspace_joins_with_its_organisation(stores: Stores) -> None:
    assert not await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") is None
    await stores.installations.save(ORGANISATION, by=ALICE)
    assert await stores.installations.find("slack", "T1") is None, "it has not joined"
    for _ in range(2):
        assert await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") == ORGANISATION
    assert await stores.installations.find("slack", "T2") is None
    assert not await stores.installations.join_organisation("slack", "T2", "T1"), "T1 is no organisation"
    assert await acts(stores) == ["workspace_joined", "workspace_joined"]


async def test_the_installation_of_a_workspace_itself_goes_first(stores: Stores) -> None:
    await stores.installations.save(ORGANISATION, by=ALICE)
    await stores.installations.save(HERE, by=ALICE)
    assert await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") == HERE
    await stores.installations.leave_workspace("slack", "T1")
    assert await stores.installations.find("slack", "T1") is None
    assert await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") == ORGANISATION
    await stores.installations.save(HERE, by=ALICE)
    assert await stores.installations.find("slack", "T1") == HERE


async def test_an_organisation_leaves_with_those_who_joined_by_it(stores: Stores) -> None:
    await stores.installations.save(ORGANISATION, by=ALICE)
    await stores.installations.save(replace(ORGANISATION, workspace_id="E2"), by=ALICE)
    for team_id, organisation_id in (("T1", "E1"), ("T2", "E1"), ("T4", "E2")):
        assert await stores.installations.join_organisation("slack", team_id, organisation_id)
    own = replace(HERE, workspace_id="T3", facts={"organisation_id": "E1"})
    await stores.installations.save(own, by=ALICE)
    runs: dict[str, str] = {}
    for number, team_id in enumerate(("T1", "T2", "T3", "T4")):
        address = replace(ADDRESS, workspace_id=team_id)
        work = replace(message("work", key=f"k{number}"), address=address)
        accepted = await stores.inbox.accept_action(work, accept)
        runs[team_id] = accepted.run_id or ""
    assert set(await stores.installations.leave_workspace("slack", "E1")) == {runs["T1"], runs["T2"]}
    found = [await stores.installations.find("slack", team_id) for team_id in runs]
    assert [one and one.workspace_id for one in found] == [None, None, "T3", "E2"]
    assert (await acts(stores))[-3:] == ["workspace_left"] * 3


async def test_a_workspace_talks_where_it_has_had_a_conversation(stores: Stores) -> None:
    await stores.say("work")
    talks = [
        await stores.installations.has_threads_in("slack", workspace_id, channel_id)
        for workspace_id, channel_id in (("T1", ADDRESS.channel_id), ("T1", "C9"), ("T2", "C1"))
    ]
    assert talks == [True, False, False]
