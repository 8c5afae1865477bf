"""The chat command `why`: what the newest run has read, what it asked users about, and who answered."""

from datetime import UTC, datetime

from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.conversation import CommandDeps
from core.context.message_text import sources_of_message
from core.domain.approval import answerer_name
from core.domain.call_consent import describe_source
from core.domain.outside_text import escape_name, inline_code, single_line
from core.domain.sources import join_sources
from core.domain.threads import Ask, ThreadSnapshot

SOURCES_SHOWN_MAX = 20
ASKS_SHOWN_MAX = 10
QUESTION_CHARACTERS_MAX = 150
NO_RUN = "Nothing has been asked of me here yet."


async def answer_why(called: CommandCalled, snapshot: ThreadSnapshot, deps: CommandDeps) -> Outcome:
    """Answers `why` for the active run, or else for the last one."""
    run = snapshot.active_run or snapshot.last_run
    if run is None:
        return Outcome(notice=NO_RUN)
    messages = await deps.conversations.llm_messages(run.thread_id)
    read = join_sources(sources_of_message(message) for message in messages if message.run_id == run.run_id).outside
    before = join_sources(sources_of_message(message) for message in messages if message.run_id != run.run_id).outside
    now = datetime.now(UTC)
    lines = [f"- {describe_source(source, now)}" for source in read[:SOURCES_SHOWN_MAX]]
    if len(read) > len(lines):
        lines.append(f"- and {len(read) - len(lines)} more")
    lines = ["Besides what you wrote to me, the newest run has read:", *(lines or ["- nothing"])]
    if before:
        lines.append(f"Before it, this conversation had read {len(before)} other sources.")
    asks = await deps.asks.asks_of_run(run.run_id)
    lines.append("It has asked:" if asks else "It asked no questions.")
    return Outcome(notice="\n".join([*lines, *map(_describe_ask, asks[-ASKS_SHOWN_MAX:])]))


def _describe_ask(ask: Ask) -> str:
    calls = [line.removeprefix("- ") for line in ask.text.split("\n") if line.startswith("- ")]
    question = single_line(" · ".join(calls) or ask.text, QUESTION_CHARACTERS_MAX)
    if ask.state != "answered":
        return f"- {inline_code(question)}: {'no answer yet' if ask.state == 'open' else ask.state}"
    return f"- {inline_code(question)}: {escape_name(answerer_name(ask))} answered {inline_code(ask.answer or '')}"
