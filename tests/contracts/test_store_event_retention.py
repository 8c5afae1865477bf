"""How long the events of a run are kept, on each database."""

from tests.contracts.stores import Stores, added


async def test_events_are_swept_some_time_after_the_end(stores: Stores) -> None:
    lease = await stores.started()
    await stores.journal.write(lease, added(lease, 1, "hello"))
    assert await stores.journal.sweep_events(older_than_hours=0) == 0
    await stores.finish(lease)
    assert await stores.journal.sweep_events(older_than_hours=-1) == 0, "they are still to be shown"
    await stores.show_all()
    assert await stores.journal.sweep_events(older_than_hours=24) == 0
    assert await stores.journal.sweep_events(older_than_hours=-1) == 1
    assert await stores.conversations.events(lease.run_id) == ()
    assert len(await stores.conversations.messages(lease.thread_id)) == 1
