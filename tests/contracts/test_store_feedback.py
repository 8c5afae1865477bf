"""The contract of `core.stores.FeedbackStore`, on each database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.stores import Feedback
from tests.contracts.stores import ADDRESS, ALICE, BOB, Stores

NOW = datetime(2026, 11, 1, tzinfo=UTC)


async def given(stores: Stores) -> Feedback:
    lease = await stores.started()
    run_id, thread_id = lease.run_id, lease.thread_id
    return Feedback(run_id=run_id, thread_id=thread_id, person=ALICE, is_good=False, request="hello", given_at=NOW)


async def test_the_last_word_of_each_person_counts(stores: Stores) -> None:
    first = await given(stores)
    second = replace(first, reason="It is wrong.", given_at=NOW + timedelta(seconds=1))
    third = replace(first, person=BOB, is_good=True, given_at=NOW + timedelta(seconds=2))
    for one in (first, second, third):
        await stores.feedback.record(one)
    assert await stores.feedback.newest_feedback(limit=10) == (second, third)
    assert await stores.feedback.newest_feedback(limit=1) == (third,)
    assert await stores.feedback.newest_feedback(limit=10, only_bad=True) == (second,)


async def test_feedback_goes_with_its_thread_and_with_its_person(stores: Stores) -> None:
    one = await given(stores)
    await stores.feedback.record(one)
    await stores.feedback.record(replace(one, person=BOB))
    await stores.conversations.erase_person(ADDRESS, BOB.person_id)
    assert await stores.feedback.newest_feedback(limit=10) == (one,)
    await stores.conversations.delete_thread(one.thread_id)
    assert await stores.feedback.newest_feedback(limit=10) == ()
    await stores.feedback.record(one)
    assert await stores.feedback.newest_feedback(limit=10) == ()
