"""The load scripts themselves, in small: nothing is lost, whatever it takes."""

from tests.load.history import history
from tests.load.loads import mentions, streams


async def test_mentions_at_a_pace_are_all_answered() -> None:
    figures = await mentions(a_second=4, seconds=2)
    assert figures["runs_a_second"] > 0
    assert figures["load_ack_p95_ms"] > 0


async def test_streams_reach_the_bus_in_few_pieces() -> None:
    figures = await streams(conversations=3, chunks=40)
    assert figures["events_a_second_max"] <= 11, "at most ten batches a second, and the edge of one"


async def test_a_full_database_holds_whole_threads() -> None:
    figures = await history(threads=20, watched=2)
    assert figures["messages"] > 20 * 50
    assert figures["next_turn_full_p50_ms"] > 0
