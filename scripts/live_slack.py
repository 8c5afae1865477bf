"""Validates every kind of message and view that the bot sends with Slack's own `blocks.validate`."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.delivery.run_view import RunView, Task
from bots.inbound.home import HomePage
from bots.slack.events.interactions import REASON, REQUEST_FIELD
from bots.slack.render.block_kit import form_view, simplify_blocks
from bots.slack.render.home import home_view, home_view_without_access
from bots.slack.render.messages import render_content
from bots.slack.web_api.client import API_URL
from core.domain.approval import CHOICES
from core.domain.events import ChecklistItem
from core.domain.json import JsonObject
from core.domain.schedules import build_commands
from core.domain.threads import Address, Ask, Person, Run, Thread

CORPUS = Path(__file__).parent.parent / "tests" / "fixtures" / "slack" / "blocks.json"
TOKEN = "THREADHAND_SLACK_BOT_TOKEN"  # noqa: S105 - the name of the variable
PAUSE_SECONDS = 1.0
"""Slack states no rate for the method, only that it has one."""
_MARKDOWN = (
    "# Sales\n\n**Up** by 3 & [more](https://example.com/a?b=1)\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    "```python\nprint('<!here> is code')\n```\n\nDone."
)
_WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def build_corpus() -> dict[str, JsonObject]:
    """Returns an example of each kind of message and view by name: `{"blocks": [...]}` or `{"view": {...}}`."""
    corpus: dict[str, JsonObject] = {}
    for name, content in _contents().items():
        drawing = render_content(content)
        corpus[name] = {"blocks": list(drawing.blocks)}
        corpus[f"{name}, simplified"] = {"blocks": list(simplify_blocks(drawing.plain_blocks))}
    ask = form_view("Ask Threadhand", "What?", REQUEST_FIELD, callback_id="ask", submit="Ask")
    why = form_view("What was wrong?", "Why?", REQUEST_FIELD, callback_id=REASON, submit="Send", is_optional=True)
    views: dict[str, JsonObject] = {
        "form of a shortcut": ask,
        "form for feedback": why,
        "home": home_view(_page()),
        "home without runs": home_view(_EMPTY_PAGE),
        "home without access": home_view_without_access("I am not allowed to work for you here."),
    }
    for name, view in views.items():
        corpus[name] = {"view": view}
    return corpus


def _contents() -> dict[str, Content]:
    view = RunView(
        state="working",
        activity="Running `pytest`",
        tasks=(
            Task(call_id="1", title="Read a.csv", state="done", detail="3 rows"),
            Task(call_id="2", title="Run pytest", state="running", detail="12 s"),
            Task(call_id="3", title="Deploy", state="failed", detail="It broke"),
        ),
        tasks_dropped=2,
        checklist_title="Plan",
        checklist=(ChecklistItem(text="Read", state="done"), ChecklistItem(text="Draw", state="active")),
        preview="The first lines of the answer",
    )
    ended = RunView(state="failed", message="It broke.", can_stop=False, can_retry=True)
    limited = RunView(state="limited", message="Budget.", can_stop=False, can_continue=True)
    long_options = tuple(f"option {number} {'x' * 80}" for number in range(6))
    asks = {
        "with buttons": Ask(ask_id="a", run_id="r", text="Which?", options=("one", "two")),
        "with a menu": Ask(ask_id="a", run_id="r", text="Which?", options=tuple(f"option {n}" for n in range(30))),
        "with menus": Ask(ask_id="a", run_id="r", text="Which?", options=tuple(f"option {n}" for n in range(150))),
        "with numbers": Ask(ask_id="a", run_id="r", text="Which?", options=long_options),
        "in words": Ask(ask_id="a", run_id="r", text="Which?"),
        "for approval": Ask(ask_id="a", run_id="r", text="`rm -r`?", options=tuple(CHOICES), kind="approval"),
        "answered": Ask(
            ask_id="a",
            run_id="r",
            text="Which?",
            state="answered",
            answer="one",
            answered_by=Person(person_id="U1", name="alice"),
        ),
        "expired": Ask(ask_id="a", run_id="r", text="Which?", state="expired"),
    }
    return {
        "status at work": RunStatus(run_id="run-1", view=view),
        "status after a failure": RunStatus(run_id="run-1", view=ended),
        "status at a limit": RunStatus(run_id="run-1", view=limited),
        "answer": AnswerPart(markdown=_MARKDOWN, run_id="run-1"),
        "part of an answer": AnswerPart(markdown="More follows.", part=1, parts=2),
        "notice": Notice(markdown="Nothing is running here."),
        "warning": Notice(markdown="A file is too large.", level="warning"),
        **{f"question {name}": AskPrompt(ask=ask) for name, ask in asks.items()},
        "question answered, with commands": AskPrompt(ask=asks["answered"], commands=build_commands("k7m2xq4b")),
        "notice with commands": Notice(markdown="Scheduled.", commands=build_commands("k7m2xq4b")),
    }


_EMPTY_PAGE = HomePage(
    runs=(),
    schedules=(),
    limits="- a run: 2.00 US dollars",
    agent="`threadhand`: does what it is asked",
    abilities="search the web",
    is_admin=False,
)


def _page() -> HomePage:
    address = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
    thread = Thread(thread_id="t", address=address, state="running", created_at=_WHEN, last_activity_at=_WHEN)
    run = Run(run_id="r", thread_id="t", status="running", agent_id="research", created_at=_WHEN)
    schedules = ("`k7m2xq4b` Post the news · every Monday at 09:00 · by alice",)
    return replace(_EMPTY_PAGE, runs=((run, thread, "What sold best?"),), schedules=schedules, is_admin=True)


async def validate_corpus(client: AsyncWebClient, *, pause_seconds: float = PAUSE_SECONDS) -> int:
    """Validates the stored corpus and prints a line for each entry. Returns how many Slack refuses."""
    refused = 0
    corpus = cast(dict[str, JsonObject], json.loads(CORPUS.read_text("utf-8")))
    for name, entry in corpus.items():
        try:
            await client.api_call("blocks.validate", json=_arguments(entry))
            told = "ok"
        except SlackApiError as error:
            refused += 1
            answer = cast(JsonObject, error.response.data)
            told = f"refused: {answer.get('error')} {json.dumps(answer.get('errors'))}"
        sys.stdout.write(f"{name}: {told}\n")
        await asyncio.sleep(pause_seconds)
    return refused


def _arguments(entry: JsonObject) -> dict[str, str]:
    """Returns the entry with its value encoded, as the method wants it."""
    return {key: json.dumps(value) for key, value in entry.items()}


def main() -> int:
    if "--write" in sys.argv[1:]:
        lines = [
            f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in build_corpus().items()
        ]
        CORPUS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
        return 0
    token = os.environ.get(TOKEN, "")  # noqa: TID251 - a script of its own
    if not token:
        sys.stderr.write(f"Set {TOKEN} to a bot token of a workspace that is yours.\n")
        return 2
    client = AsyncWebClient(token=token, base_url=f"{API_URL}/")
    return 1 if asyncio.run(validate_corpus(client)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
