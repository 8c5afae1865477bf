"""Checks that must pass after any failures: each message is answered exactly once, and nothing is lost."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from bots.demo.thread_reader import buttons_of, messages_of, text_of
from simulator.view import SeenMessage
from tests.chaos.crew import Crew, Told

FINAL_SIGNS = frozenset({"white_check_mark", "✅"})
ASKING_SIGNS = frozenset({"question", "❓"})
"""Reactions for an open question. They may remain on an answered one if a frozen process adds them late."""
SIGNS_SECONDS = 30.0
UNSETTLED = """
    SELECT run_id FROM run WHERE status IN ('queued', 'running')
    UNION ALL SELECT run_id FROM rendering WHERE is_open
    UNION ALL SELECT input_id FROM thread_input WHERE taken_by IS NULL
"""


async def settled(crew: Crew, *, seconds: float = 90) -> None:
    """Waits until every message is received, every run has ended, and every delivery is made."""
    wanted = _runs(crew)
    await crew.until_rows(
        f"SELECT 1 FROM thread_input HAVING count(*) >= {wanted}",  # noqa: S608 - a number
        "all that was said is taken in",
        seconds=seconds,
    )
    await crew.until_rows(f"SELECT 1 WHERE NOT EXISTS ({UNSETTLED})", "all ends", seconds=seconds)
    try:
        await crew.until(
            lambda: not _loose_ends(crew), "the last signs are set", seconds=SIGNS_SECONDS
        )
    except AssertionError as error:
        raise AssertionError("\n".join([*_loose_ends(crew), str(error)])) from None


async def check(crew: Crew) -> None:
    """Checks all invariants. Raises AssertionError with a report."""
    problems = [*_seen(crew), *await _stored(crew)]
    problems += [f"the model was asked nonsense: {one}" for one in crew.stage.script.problems]
    assert not problems, "\n".join([*problems, crew.report()])


async def settle_and_check(crew: Crew, *, seconds: float = 90) -> None:
    await settled(crew, seconds=seconds)
    await check(crew)


def _runs(crew: Crew) -> int:
    return sum(told.runs for told in crew.told)


def _loose_ends(crew: Crew) -> list[str]:
    return [one for told in crew.told for one in _of_request(crew, told)]


def _seen(crew: Crew) -> Iterable[str]:
    """Yields violations that people see. Each run has one status, one answer or question, its files, and a reaction."""
    for told in crew.told:
        yield from _of_request(crew, told)
        yield from _of_answer(_ours(crew, told.thread_id), told)
    for thread_id in {told.thread_id for told in crew.told}:
        ours = _ours(crew, thread_id)
        requests = [one for one in crew.told if one.thread_id == thread_id]
        files = list(chain.from_iterable(one.files for one in requests))
        wanted = 2 * sum(one.runs for one in requests) + len(files)
        if len(ours) != wanted:
            yield f"thread {thread_id} has {len(ours)} messages of ours instead of {wanted}"
        if any(buttons_of(one) for one in ours):
            yield f"thread {thread_id} still offers a button"


def _of_answer(ours: list[SeenMessage], told: Told) -> Iterable[str]:
    answers = sum(f"Done {told.token}." in text_of(one) for one in ours)
    if answers != 1:
        yield f"{told.token} has {answers} answers"
    names = Counter(file.name for one in ours for file in one.files)
    for name in told.files:
        if names[name] != 1:
            yield f"the file {name} came {names[name]} times"


def _of_request(crew: Crew, told: Told) -> Iterable[str]:
    thread = messages_of(crew.stage.view(), told.thread_id)
    request = next((one for one in thread if one.message_id == told.message_id), None)
    signs = {one.emoji for one in request.reactions} if request else set[str]()
    if not signs or signs - (FINAL_SIGNS | ASKING_SIGNS if told.is_question else FINAL_SIGNS):
        yield f"the request {told.token} bears {signs or 'nothing'}"


def _ours(crew: Crew, thread_id: str) -> list[SeenMessage]:
    thread = messages_of(crew.stage.view(), thread_id)
    return [one for one in thread if one.is_bot and one.visible_to is None]


async def _stored(crew: Crew) -> Iterable[str]:
    """Yields violations in the database."""
    problems: list[str] = []
    runs = Counter(str(status) for (status,) in await crew.rows("SELECT status FROM run"))
    wanted = _runs(crew)
    if runs != {"completed": wanted}:
        problems.append(f"{wanted} requests and replies have the runs {dict(runs)}")
    inputs = await crew.rows("SELECT message_ref, taken_by FROM thread_input")
    refs = [ref for ref, _ in inputs if ref]  # clicks have no ref
    if len({*refs}) != len(refs):
        problems.append("a message was taken in twice")
    if len({run_id for _, run_id in inputs}) != wanted:
        problems.append("a request shares its run with another")
    deliveries = await crew.rows("SELECT state, slot, message_ref FROM delivery")
    undelivered = [row for row in deliveries if row[0] != "delivered"]
    if undelivered:
        problems.append(f"not delivered: {undelivered}")
    held = await crew.rows("SELECT run_id FROM lease WHERE run_id IS NOT NULL")
    if held:
        problems.append(f"leases are still held: {held}")
    ends = 'SELECT run_id FROM run_event WHERE body LIKE \'%%"kind":"run_finished"%%\''
    finished = Counter(run_id for (run_id,) in await crew.rows(ends.replace("%%", "%")))
    if any(times != 1 for times in finished.values()) or len(finished) != wanted:
        problems.append(f"the ends of runs: {finished}")
    return problems
