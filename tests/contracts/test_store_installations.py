"""Workspaces that installed the bot, on each database."""

from dataclasses import replace

from core.installations import Installation
from tests.contracts.stores import ADDRESS, ALICE, FAILED, Stores, accept, message

HERE = Installation(
    platform="slack", workspace_id="T1", sealed_token="sealed", facts={"bot_id": "B1"}
)


async def acts(stores: Stores) -> list[str]:
    found = await stores.audit.newest(limit=20)
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
    assert await stores.installations.reseal(HERE, "newer")
    assert not await stores.installations.reseal(HERE, "too late")
    assert not await stores.installations.reseal(replace(HERE, workspace_id="T2"), "x")
    assert await stores.installations.find("slack", "T1") == replace(HERE, sealed_token="newer")


async def test_who_leaves_takes_the_token_and_names_its_own_open_runs(stores: Stores) -> None:
    await stores.installations.save(HERE, by=ALICE)
    open_run = await stores.say("work")
    elsewhere = replace(
        message("work", key="k2"), address=replace(ADDRESS, workspace_id="T2", thread_key="9")
    )
    await stores.inbox.accept(elsewhere, accept)
    assert await stores.installations.leave("slack", "T1") == (open_run.run_id,)
    assert await stores.installations.find("slack", "T1") is None
    lease = await stores.claims.claim(open_run.run_id or "", "w1")
    assert lease is not None
    await stores.finish(lease, FAILED)
    assert await stores.installations.leave("slack", "T1") == ()
    assert await acts(stores) == ["workspace_joined", "workspace_left"]


async def test_a_place_without_a_token_only_names_its_runs(stores: Stores) -> None:
    run = await stores.say("work")
    assert await stores.installations.leave("slack", "T1") == (run.run_id,)
    assert await acts(stores) == []
