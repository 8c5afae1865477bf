"""Short questions to a model, outside of any conversation."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import cast

import jiter

from core.context.tokens import count_text
from core.context.untrusted_text import wrap_untrusted
from core.domain.errors import ModelError
from core.domain.threads import Usage
from core.knowledge.ports import Ask
from core.model_usage import record_model_usage
from core.ports import ModelDelta, ModelRequest, TextDelta

OUTPUT_TOKENS_MAX = 2_000


def model_asker(
    ask_model: Callable[[ModelRequest], AsyncGenerator[ModelDelta, None]],
    model: str,
    *,
    output_tokens_max: int = OUTPUT_TOKENS_MAX,
    on_usage: Callable[[str, Usage], None] = lambda _model, _usage: None,
) -> Ask:
    """A question becomes one user message; `on_usage` is told who gave each answer and what it used."""

    async def ask(question: str) -> str:
        request = ModelRequest(
            model=model,
            messages=({"role": "user", "content": question},),
            output_tokens_max=output_tokens_max,
        )
        async with aclosing(record_model_usage(ask_model(request), request, on_usage)) as deltas:
            said = [delta.text async for delta in deltas if isinstance(delta, TextDelta)]
        return "".join(said).strip()

    return ask


log = logging.getLogger(__name__)

_KEYWORDS_MAX = 24
_KEYWORD_CHARACTERS_MAX = 80
_ANSWERS_TOKENS_MAX = 4_500
_QUESTION_CHARACTERS_MAX = 2_000

_PROMPT = """You help to search documents. Give the keywords to search for: the important words of the question, and \
related words, synonyms and proper names that the documents may use instead. Give each in Chinese and in English. \
Reply with JSON alone, in this form:
{{"keywords_zh": ["…", "…"], "keywords_en": ["…", "…"]}}

Question: {question}
"""


async def expand_query(question: str, ask: Ask | None, *, found: str = "") -> tuple[str, ...]:
    """The question and, where a model may be asked and gives some, keywords. `found` is what is known so far.

    Never fails for the model's sake: a search by the question's own words is better than none.
    """
    if ask is None or not question.strip():
        return (question,)
    known = ""
    if found and count_text(found) <= _ANSWERS_TOKENS_MAX:
        known = f"\nWhat the documents are known to say so far:\n{wrap_untrusted(found, source='documents')}\n"
    try:
        answer = await ask(_PROMPT.format(question=question[:_QUESTION_CHARACTERS_MAX]) + known)
    except ModelError as error:
        log.warning("no keywords from the model: %s", error.detail or type(error).__name__)
        return (question,)
    return (question, *parse_keywords(answer))


def parse_keywords(answer: str) -> tuple[str, ...]:
    """The keywords of an answer that is JSON, or has JSON in it, perhaps cut off; none for anything else."""
    said = first_json_object(answer)
    lists = [said.get("keywords_zh"), said.get("keywords_en")]
    words = [word for one in lists if isinstance(one, list) for word in cast(list[object], one)]
    kept = dict.fromkeys(
        word.strip()[:_KEYWORD_CHARACTERS_MAX]
        for word in words
        if isinstance(word, str) and word.strip()
    )
    return tuple(kept)[:_KEYWORDS_MAX]


def first_json_object(answer: str) -> dict[str, object]:
    """The first JSON object in a text, also where it is cut off or wrapped in a code fence; empty where none is."""
    start = answer.find("{")
    if start < 0:
        return {}
    end = answer.rfind("}")
    # whole first: what follows the object would make it unreadable
    for candidate in (answer[start : end + 1], answer[start:]):
        try:
            value: object = jiter.from_json(candidate.encode("utf-8", "replace"), partial_mode=True)
        except ValueError:
            continue
        if isinstance(value, dict):
            return cast(dict[str, object], value)
    return {}
