"""Checks that must pass after any failures: each message is answered exactly once, and nothing is lost."""

from collections import Counter
from collections.abc import Iterable

from bots.demo.thread_reader import messages_of, text_of
from simulator.view import SeenMessage
from tests.chaos.cluster import Cluster, SentMessage
from tests.chaos.open_buttons import open_buttons_of

FINAL_SIGNS = frozenset({"white_check_mark", "✅"})
ASKING_SIGNS = frozenset({"question", "❓"})
"""Reactions for an open question. They may remain on an answered one if a frozen process adds them late."""
SIGNS_SECONDS = 30.0
UNSETTLED = """
    SELECT run_id FROM run WHERE status IN ('queued', 'running')
    UNION ALL SELECT run_id FROM rendering WHERE is_open
    UNION ALL SELECT input_id FROM thread_input WHERE taken_by IS NULL
"""


async def settled(cluster: Cluster, *, seconds: float = 90) -> None:
    """Waits until every message is received, every run has ended, and every delivery is made."""
    wanted = _runs(cluster)
    await cluster.until_rows(
        f"SELECT 1 FROM thread_input HAVING count(*) >= {wanted}",  # noqa: S608 - a number
        "all that was said is taken in",
        seconds=seconds,
    )
    await cluster.until_rows(f"SELECT 1 WHERE NOT EXISTS ({UNSETTLED})", "all ends", seconds=seconds)
    try:
        await cluster.until(lambda: not _loose_ends(cluster), "the last signs are set", seconds=SIGNS_SECONDS)
    except AssertionError as error:
        raise AssertionError("\n".join([*_loose_ends(cluster), str(error)])) from None


async def check(cluster: Cluster) -> None:
    """Checks all invariants. Raises AssertionError with a report."""
    problems = [*_seen(cluster), *await _stored(cluster)]
    problems += [f"the model was asked nonsense: {one}" for one in cluster.stage.script.problems]
    assert not problems, "\n".join([*problems, cluster.report()])


async def settle_and_check(cluster: Cluster, *, seconds: float = 90) -> None:
    await settled(cluster, seconds=seconds)
    await check(cluster)


def _runs(cluster: Cluster) -> int:
    return sum(message.runs for message in cluster.sent)


def _loose_ends(cluster: Cluster) -> list[str]:
    return [one for message in cluster.sent for one in _of_request(cluster, message)]


def _seen(cluster: Cluster) -> Iterable[str]:
    """Yields violations that people see. Each run has one status, one answer with its files or one question, and a
    reaction."""
    for message in cluster.sent:
        yield from _of_request(cluster, message)
        yield from _of_answer(_ours(cluster, message.thread_id), message)
    for thread_id in {message.thread_id for message in cluster.sent}:
        ours = _ours(cluster, thread_id)
        requests = [one for one in cluster.sent if one.thread_id == thread_id]
        wanted = 2 * sum(one.runs for one in requests)
        if len(ours) != wanted:
            yield f"thread {thread_id} has {len(ours)} messages of ours instead of {wanted}"
        if any(open_buttons_of(one) for one in ours):
            yield f"thread {thread_id} still offers a button"


def _of_answer(ours: list[SeenMessage], message: SentMessage) -> Iterable[str]:
    answers = sum(f"Done {message.token}." in text_of(one) for one in ours)
    if answers != 1:
        yield f"{message.token} has {answers} answers"
    names = Counter(file.name for one in ours for file in one.files)
    for name in message.files:
        if names[name] != 1:
            yield f"the file {name} came {names[name]} times"


def _of_request(cluster: Cluster, message: SentMessage) -> Iterable[str]:
    thread = messages_of(cluster.stage.view(), message.thread_id)
    request = next((one for one in thread if one.message_id == message.message_id), None)
    signs = {one.emoji for one in request.reactions} if request else set[str]()
    if not signs or signs - (FINAL_SIGNS | ASKING_SIGNS if message.is_question else FINAL_SIGNS):
        yield f"the request {message.token} bears {signs or 'nothing'}"


def _ours(cluster: Cluster, thread_id: str) -> list[SeenMessage]:
    thread = messages_of(cluster.stage.view(), thread_id)
    return [one for one in thread if one.is_bot and one.visible_to is None]


async def _stored(cluster: Cluster) -> Iterable[str]:
    """Yields violations in the database."""
    problems: list[str] = []
    runs = Counter(str(status) for (status,) in await cluster.rows("SELECT status FROM run"))
    wanted = _runs(cluster)
    if runs != {"completed": wanted}:
        problems.append(f"{wanted} requests and replies have the runs {dict(runs)}")
    inputs = await cluster.rows("SELECT message_ref, taken_by FROM thread_input")
    refs = [ref for ref, _ in inputs if ref]  # clicks have no ref
    if len({*refs}) != len(refs):
        problems.append("a message was taken in twice")
    if len({run_id for _, run_id in inputs}) != wanted:
        problems.append("a request shares its run with another")
    deliveries = await cluster.rows("SELECT state, slot, message_ref FROM delivery")
    undelivered = [row for row in deliveries if row[0] != "delivered"]
    if undelivered:
        problems.append(f"not delivered: {undelivered}")
    held = await cluster.rows("SELECT run_id FROM lease WHERE run_id IS NOT NULL")
    if held:
        problems.append(f"leases are still held: {held}")
    ends = 'SELECT run_id FROM run_event WHERE body LIKE \'%%"kind":"run_finished"%%\''
    finished = Counter(run_id for (run_id,) in await cluster.rows(ends.replace("%%", "%")))
    if any(times != 1 for times in finished.values()) or len(finished) != wanted:
        problems.append(f"the ends of runs: {finished}")
    return problems
