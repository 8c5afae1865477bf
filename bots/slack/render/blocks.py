"""Draws content as Slack messages: fallback text and Block Kit blocks, within Slack's limits; pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.slack import limits
from bots.slack.render.ask_blocks import ask_blocks, ask_fallback
from bots.slack.render.elements import context, cut_escaped, markdown
from bots.slack.render.status_blocks import status_blocks, status_headline
from core.domain.messages import JsonObject

_LEVEL_SIGNS = {"info": "", "warning": ":warning: ", "error": ":x: "}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A message as Slack takes it. `text` is what notifications and old clients show."""

    text: str
    blocks: tuple[JsonObject, ...]


def draw(content: Content) -> Drawing:
    """The content as a message. Nothing in it can ping anybody."""
    match content:
        case RunStatus(run_id=run_id, view=view):
            blocks = status_blocks(run_id, view)
            words = status_headline(view)
        case AnswerPart():
            blocks = list(_answer_blocks(content))
            words = content.markdown
        case AskPrompt(ask=ask):
            blocks = ask_blocks(ask)
            words = ask_fallback(ask)
        case Notice(markdown=words, level=level):
            blocks = [markdown(_LEVEL_SIGNS[level] + words)]
        case _:
            assert_never(content)
    fallback = cut_escaped(words.strip(), limits.FALLBACK_TEXT_MAX) or "…"
    return Drawing(text=fallback, blocks=tuple(blocks))


def _answer_blocks(part: AnswerPart) -> Iterator[JsonObject]:
    yield markdown(part.markdown)
    if part.parts > 1:
        yield context(f"Part {part.part} of {part.parts}")
