"""What `why` says of the newest run: what it has read, what was read before, and whom it asked."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.why import ASKS_SHOWN_MAX, NO_RUN, SOURCES_SHOWN_MAX, answer_why
from core.domain.messages import Message
from core.domain.sources import SOURCES_KEY, dump_sources, sources_read_now
from core.domain.threads import Ask
from tests.support.conversations import message
from tests.unit.bots.test_what_actions_touch import ALICE, SLACK, snapshot

READ = "Besides what you wrote to me, the newest run has read:"
OPEN = Ask(ask_id="a", run_id="r", text="Which one?")
ANSWERED = replace(OPEN, text="Shall I?\n- send `x`\n- delete y", state="answered", answer="yes", answered_by=ALICE)


def reading(*files: str, run_id: str) -> Message:
    sources = sources_read_now(*(("file", name) for name in files))
    content = {"role": "tool", "content": "x"}
    return message("tool", content, run_id=run_id, metadata={SOURCES_KEY: dump_sources(sources)})


def lines_of(*files: str) -> list[str]:
    return [f"- the file `{name}`, read just now" for name in files]


MANY = [f"{number:02}.md" for number in reversed(range(SOURCES_SHOWN_MAX + 1))]


@pytest.mark.parametrize(
    ("read", "asks", "lines"),
    [
        (None, [], [READ, "- nothing", "It asked no questions."]),
        (("r", ["a.md"]), [OPEN], [READ, *lines_of("a.md"), "It has asked:", "- `Which one?`: no answer yet"]),
        (("q", ["a.md", "b.md"]), [replace(OPEN, state="expired")],
         [READ, "- nothing", "Before it, this conversation had read 2 other sources.", "It has asked:",
          "- `Which one?`: expired"]),
        (("r", MANY[1:]), [ANSWERED],
         [READ, *lines_of(*MANY[1:]), "It has asked:", "- `send 'x' · delete y`: Alice answered `yes`"]),
        (("r", MANY), [OPEN] * (ASKS_SHOWN_MAX + 1),
         [READ, *lines_of(*MANY[:-1]), "- and 1 more", "It has asked:",
          *["- `Which one?`: no answer yet"] * ASKS_SHOWN_MAX]),
    ],
)  # fmt: skip
async def test_what_the_newest_run_has_read_and_asked(
    read: tuple[str, list[str]] | None, asks: list[Ask], lines: list[str]
) -> None:
    messages = [reading(*read[1], run_id=read[0])] if read else []

    async def llm_messages(thread_id: str) -> Any:
        assert thread_id == "t"
        return messages

    async def asks_of_run(run_id: str) -> list[Ask]:
        assert run_id == "r"
        return asks

    deps: Any = SimpleNamespace(
        conversations=SimpleNamespace(llm_messages=llm_messages), asks=SimpleNamespace(asks_of_run=asks_of_run)
    )
    called = CommandCalled(address=SLACK, dedupe_key="k", name="why", argument="", person=ALICE)
    state = snapshot(SLACK)
    for known in (state, replace(state, active_run=None)):
        assert (await answer_why(called, known, deps)).notice.split("\n") == lines
    assert (await answer_why(called, replace(state, active_run=None, last_run=None), deps)).notice == NO_RUN
