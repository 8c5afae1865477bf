"""The log: one line an entry, and no secret in it."""

import asyncio
import json
import logging
import sys
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from bots.observability.logs import (
    KINDS_MAX,
    LINES_A_MINUTE,
    REDACTED,
    FloodFilter,
    JsonFormatter,
    TextFormatter,
    redact_secrets,
)
from core.domain.errors import SurfaceError
from core.observability import set_log_context


def formatted(message: str, *arguments: object, secrets: tuple[str, ...] = ()) -> str:
    record = logging.LogRecord("core.run.execute", logging.INFO, "", 0, message, arguments, None)
    return TextFormatter(secrets).format(record)


@pytest.mark.parametrize(
    "secret",
    [
        "xoxb-123456789-abcdefghij",
        "xapp-1-A0123-456-abcdef0123456789",
        "sk-ant-api03-abcdefghijkl",
        "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA." + "GabcDE." + "a" * 27,
        "tvly-0123456789abcdefghij",
        "fc-0123456789abcdef0123456789abcdef",
    ],
)
def test_anything_shaped_like_a_token_is_taken_out(secret: str) -> None:
    line = formatted("calling with %s now", secret)
    assert secret not in line
    assert f"calling with {REDACTED} now" in line


def test_credentials_in_headers_and_urls_are_taken_out() -> None:
    text = redact_secrets(
        "Authorization: Bearer abcdefghijklmnop to postgresql://u:pass@db/x and redis://:a@b:c@host:1/0"
    )
    assert text == f"Authorization: Bearer {REDACTED} to postgresql://{REDACTED}@db/x and redis://{REDACTED}@host:1/0"


def test_a_terminal_obeys_nothing_in_a_line() -> None:
    assert formatted("a%sb", "\x1b[2J\u2028\u202e\x9b").endswith(r"a\x1b[2J\u2028\u202e\x9bb")


def test_known_secrets_are_taken_out_whatever_their_shape() -> None:
    assert "my own token" not in formatted("x my own token y", secrets=("my own token",))


def test_a_traceback_stays_on_the_line_of_its_entry() -> None:
    try:
        raise SurfaceError("broken\nin two: xoxb-123456789-abc")
    except SurfaceError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    for line in (TextFormatter().format(record), TextFormatter(with_texts=True).format(record)):
        assert "\n" not in line
        assert "SurfaceError: broken ⏎ in two" in line
        assert "xoxb" not in line


async def test_the_lines_of_a_task_bear_its_marks_and_those_of_others_do_not() -> None:
    async def work(run_id: str) -> str:
        set_log_context(run_id=run_id)
        await asyncio.sleep(0)
        return formatted("working")

    lines = await asyncio.gather(work("r-1"), work("r-2"))
    assert [line.split("working")[1] for line in lines] == [" run_id=r-1", " run_id=r-2"]
    assert formatted("working").endswith("working")


def test_a_line_of_json_has_the_same_without_secrets() -> None:
    try:
        raise SurfaceError("broken\nin two: xoxb-123456789-abc")
    except SurfaceError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "a %s", ('my "own" key',), sys.exc_info())
    line = JsonFormatter(('my "own" key',)).format(record)
    entry = json.loads(line)
    assert "\n" not in line
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "x", f"a {REDACTED}")
    assert entry["trace"].endswith(f"SurfaceError: broken\nin two: {REDACTED}")


def test_what_did_not_fit_is_not_quoted() -> None:
    class Count(BaseModel):
        number: int

    with pytest.raises(ValidationError) as caught:
        Count.model_validate({"number": "what somebody wrote"})
    assert "what somebody wrote" not in formatted("%s", str(caught.value))
    assert "valid integer" in formatted("%s", str(caught.value))


@given(st.uuids(), st.integers(0, 4))
def test_the_ids_of_runs_are_no_secrets(some: UUID, group: int) -> None:
    parts = str(some).split("-")
    parts[group] = "fc" + parts[group][2:]  # as Firecrawl's keys begin
    line = f"worker vm-1-{parts[0]} takes up run {'-'.join(parts)}, attempt 1"
    assert redact_secrets(line) == line


def test_a_flood_of_one_kind_is_cut_and_counted() -> None:
    flood, error = FloodFilter(), (ValueError, ValueError("x"), None)

    def line(message: str, at: float, level: int = logging.ERROR) -> str | None:
        record = logging.LogRecord("asyncio", level, "", 0, message, (), error)
        record.created = at
        return TextFormatter().format(record).split("asyncio ")[1] if flood.filter(record) else None

    message = "socket.accept() out of system resource\nsocket: <fd=%d>"
    shown = [one for n in range(500) if (one := line(message.replace("%d", str(n)), 1000 + n / 100))]
    assert len(shown) == LINES_A_MINUTE
    assert all("ValueError" in one for one in shown)
    assert ["for a minute" in one for one in shown] == [False, False, False, False, True]
    assert "more were" not in (line("another message", 1001) or "more were")
    assert "(495 more were left out)" in (line(message, 1061) or "")
    assert all(line("news", 1001, logging.INFO) for _ in range(20))


def test_the_kinds_of_a_flood_are_not_kept_for_ever() -> None:
    flood = FloodFilter()
    for n in range(3 * KINDS_MAX):
        assert flood.filter(logging.LogRecord("a", logging.ERROR, "", 0, f"message {n}", (), None))
    assert len(flood._kinds) <= KINDS_MAX
