"""Asks a model single questions outside any conversation, and parses search keywords from its answers."""

import logging
from collections.abc import AsyncGenerator, Callable
from typing import cast

import jiter

from core.context.tokens import count_text
from core.context.untrusted_text import wrap_untrusted
from core.domain.errors import ModelError
from core.domain.threads import Usage
from core.knowledge.ports import Ask
from core.model_usage import read_text, stream_with_charge
from core.ports import ModelDelta, ModelRequest

OUTPUT_TOKENS_MAX = 2_000


def build_model_asker(
    ask_model: Callable[[ModelRequest], AsyncGenerator[ModelDelta, None]],
    model: str,
    *,
    output_tokens_max: int = OUTPUT_TOKENS_MAX,
    on_usage: Callable[[str, Usage], None] = lambda _model, _usage: None,
) -> Ask:
    """Returns a function that asks the model one question. `on_usage` receives the model and usage of each answer."""

    async def ask(question: str) -> str:
        request = ModelRequest(
            model=model, messages=({"role": "user", "content": question},), output_tokens_max=output_tokens_max
        )
        response = await read_text(stream_with_charge(ask_model(request), request, on_usage))
        return response.text.strip()

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
    """Returns the question and, if `ask` is given, search keywords from a model. `found` is text found so far.

    Logs a model error and returns only the question."""
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
    """Returns the keywords in a response that is or contains JSON, which may be truncated. Returns an empty tuple
    without JSON."""
    said = first_json_object(answer)
    lists = [said.get("keywords_zh"), said.get("keywords_en")]
    words = [word for one in lists if isinstance(one, list) for word in cast(list[object], one)]
    kept = dict.fromkeys(
        word.strip()[:_KEYWORD_CHARACTERS_MAX] for word in words if isinstance(word, str) and word.strip()
    )
    return tuple(kept)[:_KEYWORDS_MAX]


def first_json_object(answer: str, *, keeps_cut_text: bool = False) -> dict[str, object]:
    """Returns the first JSON object in a text, even if it is truncated or in a code fence, or an empty dictionary if
    there is none."""
    mode = "trailing-strings" if keeps_cut_text else True
    start = answer.find("{")
    if start < 0:
        return {}
    end = answer.rfind("}")
    # tries it first without text after the object, because such text would make the JSON invalid
    for candidate in (answer[start : end + 1], answer[start:]):
        try:
            value: object = jiter.from_json(candidate.encode("utf-8", "replace"), partial_mode=mode)
        except ValueError:
            continue
        if isinstance(value, dict):
            return cast(dict[str, object], value)
    return {}
