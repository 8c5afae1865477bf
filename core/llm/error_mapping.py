"""Maps error responses of model services to ModelError subclasses. All model clients share this mapping."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from core.domain.errors import AnswerRejected, ContextOverflow, ModelError, ModelRejected, ModelUnavailable

DETAIL_CHARACTERS_MAX = 500
WORDS_CHARACTERS_MAX = 4_000
RETRY_AFTER_SECONDS_MAX = 3600.0

OVERLOADED = "The model's service is overloaded or has a fault. Try again in a while."
RATE_LIMITED = "The model's service asks us to slow down. Try again in a while."
TIMED_OUT = "The model's service did not answer in time. Try again in a while."
UNREACHABLE = "The model's service cannot be reached. Try again in a while."
ANSWER_BROKE_OFF = "The model's answer broke off. Try again."
UNREADABLE_RESPONSE = "The model's service sent something that cannot be read. Try again."
TOO_LARGE = "The model's answer is too large to be read. Ask for less at once."
CONTEXT_OVERFLOW = "The conversation is too long for this model."
KEY_REJECTED = "The model's service refuses our key. The operator has to check it."
FORBIDDEN = "The model's service does not let us use this model. The operator has to check the account."
NO_CREDIT = "The account at the model's service has no credit left. The operator has to top it up."
UNKNOWN_MODEL = "The model's service does not know this model. The operator has to check its name and address."
CONTENT_REJECTED = "The model's service refused the request because of its content. Reword it and try again."
REDIRECTED = "The address of the model's service leads elsewhere. The operator has to set the final address."
BAD_REQUEST = "The model's service did not accept the request. The log tells the operator why."
UNREADABLE_CALL = "The model wrote calls that its service cannot read. Try again, or choose another model."
ENDLESS = "The model repeated itself without end. Try again, or choose another model."

NO_TOOL_CALLS = "This model accepts no tool calls. The operator has to set `THREADHAND_DIALECT=xml` or another model."
NO_MODULE = "A Python package that this model needs is not installed. The operator has to install it; the log names it."
NO_IMAGES = "This model accepts no images."

_BY_STATUS: Mapping[int, tuple[type[ModelError], str]] = {
    401: (ModelRejected, KEY_REJECTED),
    402: (ModelRejected, NO_CREDIT),
    403: (ModelRejected, FORBIDDEN),
    404: (ModelRejected, UNKNOWN_MODEL),
    408: (ModelUnavailable, TIMED_OUT),
    409: (ModelUnavailable, OVERLOADED),
    413: (ContextOverflow, CONTEXT_OVERFLOW),
    425: (ModelUnavailable, OVERLOADED),
    429: (ModelUnavailable, RATE_LIMITED),
    501: (ModelRejected, BAD_REQUEST),
    504: (ModelUnavailable, TIMED_OUT),
}
_BY_CODE: Mapping[str, tuple[type[ModelError], str]] = {
    "context_length_exceeded": (ContextOverflow, CONTEXT_OVERFLOW),
    "context_window_exceeded": (ContextOverflow, CONTEXT_OVERFLOW),
    "exceed_context_size_error": (ContextOverflow, CONTEXT_OVERFLOW),
    "request_too_large": (ContextOverflow, CONTEXT_OVERFLOW),
    "authentication_error": (ModelRejected, KEY_REJECTED),
    "permission_error": (ModelRejected, FORBIDDEN),
    "model_not_found": (ModelRejected, UNKNOWN_MODEL),
    "not_found_error": (ModelRejected, UNKNOWN_MODEL),
    "content_filter": (ModelRejected, CONTENT_REJECTED),
    "content_policy_violation": (ModelRejected, CONTENT_REJECTED),
    "data_inspection_failed": (ModelRejected, CONTENT_REJECTED),
    "invalid_prompt": (ModelRejected, CONTENT_REJECTED),
    "rate_limit_exceeded": (ModelUnavailable, RATE_LIMITED),
    "rate_limit_error": (ModelUnavailable, RATE_LIMITED),
    "server_error": (ModelUnavailable, OVERLOADED),
    "timeout_error": (ModelUnavailable, TIMED_OUT),
}
_SLIP = r"(?i)tool_use_failed|output_parse_failed|error parsing tool call|failed to parse (?:the )?tool call"
_KEY = (
    r"(?i)api[ _]key[ _](?:is |was )?(?:not valid|not found|invalid|expired|reported as leaked)"
    r"|(?:invalid|incorrect)[ _](?:x-)?api[ _-]key"
)
_CREDIT = (
    r"(?i)credit balance is too low|insufficient[ _](?:balance|quota|credits?|funds)|exceeded_current_quota|arrearage"
    r"|(?:no|out of|used all available) credits|specified (?:api )?usage limits|billing_(?:error|hard_limit)"
)
_NO_TOOLS = (
    r"(?i)(?:not|n't) support (?:tools\b|(?:tool|function)[ _](?:use|call))|that support tool use"
    r"|enable-auto-tool-choice|tools param requires|function calling not support"
    r"|unsupported param(?:eter)?\W{1,3}tools\b"
    r"|(?<!_)(?:tools?|(?:tool|function)[ _](?:use|calls?|calling))\W{1,3}(?:is|are) not (?:supported|enabled)"
)
_NO_IMAGES = (
    r"(?i)(?:not|n't) (?:currently )?support (?:images?\b|image_url|vision|multi-?modal)|that support image input"
    r"|image_url\W{0,3} is only supported|unknown variant \W{0,2}image_url|not a multi-?modal model"
    r"|(?:images?|vision|image (?:url|input)s?) (?:is|are) not (?:supported|enabled)"
)
_BY_WORDS: Sequence[tuple[re.Pattern[str], type[ModelError], str]] = (
    (re.compile(_SLIP), AnswerRejected, UNREADABLE_CALL),
    (re.compile(_KEY), ModelRejected, KEY_REJECTED),
    (re.compile(_CREDIT), ModelRejected, NO_CREDIT),
    (re.compile(_NO_TOOLS), ModelRejected, NO_TOOL_CALLS),
    (re.compile(_NO_IMAGES), ModelRejected, NO_IMAGES),
    (re.compile(r"(?i)(?:prompt|input|request) (?:was|is) (?:flagged|blocked)"), ModelRejected, CONTENT_REJECTED),
    (re.compile(r"(?i)request too large for"), ContextOverflow, CONTEXT_OVERFLOW),
)
"""Recognizes an error by the words of its message, whatever its status is. The first match counts. A message may
quote what the model wrote. The last pattern is a rate limit that this request alone exceeds, so waiting does not
help."""
_ABOUT_OUR_ACCOUNT = frozenset((KEY_REJECTED, NO_CREDIT))
_OVERFLOW = re.compile(
    r"context[ _]?(?:length|window|size|limit)|(?:prompt|input) is too long|length of the (?:messages|prompt|input)"
    r"|(?:prompt|input|request)[^.]{0,40}too many tokens|too many tokens: |exceeds? the (?:maximum|max)[^.]{0,40}tokens"
    r"|(?:input|prompt) token count|max(?:imum)? (?:input|prompt|model) (?:tokens|length)|range of input length"
    r"|model token limit|prompt exceeds max|tokens \+ `max_new_tokens",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """An error that a model service returned. `status` is the HTTP status, or 0 if the error arrived inside a stream
    that had already started. `upstream` holds the error that a forwarding service received, whose account there is not
    ours, and other details."""

    status: int = 0
    code: str = ""
    message: str = ""
    upstream: str = ""
    retry_after_seconds: float | None = None


def to_model_error(refusal: ErrorResponse) -> ModelError:
    """Returns the ModelError for an error response.

    The words of the message take precedence over the error code, and the code over the HTTP status. A context overflow
    without a known code is recognized by the words, too."""
    words = f"{refusal.code} {refusal.message[:WORDS_CHARACTERS_MAX]}"
    all_words = f"{words} {refusal.upstream[:WORDS_CHARACTERS_MAX]}"
    kind, sentence = _BY_CODE.get(refusal.code.lower()) or _by_status(refusal)
    is_vague = refusal.status in (0, 400, 422) or refusal.status >= 500
    told = (one[1:] for one in _BY_WORDS if one[0].search(words if one[2] in _ABOUT_OUR_ACCOUNT else all_words))
    if is_vague and refusal.code != "rate_limit_exceeded" and _OVERFLOW.search(all_words):
        kind, sentence = ContextOverflow, CONTEXT_OVERFLOW
    kind, sentence = next(told, (kind, sentence))
    said = (str(refusal.status or ""), refusal.code, refusal.message, refusal.upstream)
    detail = " ".join(part for part in said if part)[:DETAIL_CHARACTERS_MAX]
    if kind is ModelUnavailable:
        return ModelUnavailable(
            sentence,
            detail=detail,
            retry_after_seconds=refusal.retry_after_seconds or _told_wait(all_words),
            is_late=sentence == TIMED_OUT,
        )
    return kind(sentence, detail=detail)


def _by_status(refusal: ErrorResponse) -> tuple[type[ModelError], str]:
    status = refusal.status
    if status == 0 and refusal.code.isdecimal():
        # OpenRouter sends the upstream provider's HTTP status as the error code
        status = int(refusal.code[:3])
    if status == 0 and refusal.code == "invalid_request_error":
        return ModelRejected, BAD_REQUEST
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 300 <= status < 400:
        return ModelRejected, REDIRECTED
    if 400 <= status < 500:
        return ModelRejected, BAD_REQUEST
    return ModelUnavailable, OVERLOADED


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the wait in seconds that the response headers request, or None.

    Accepts seconds, milliseconds (`retry-after-ms`) and dates (RFC 9110, section 10.2.3)."""
    for name, unit_seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text) * unit_seconds
        except ValueError:
            try:
                moment = parsedate_to_datetime(text)
            except (ValueError, OverflowError):
                continue
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            seconds = max(0.0, (moment - datetime.now(UTC)).total_seconds())
        if 0 <= seconds < float("inf"):
            return min(seconds, RETRY_AFTER_SECONDS_MAX)
    return None


_TOLD_WAIT = re.compile(
    r"(?:(?:try again|retry) (?:in|after)|retryDelay\W{1,6}) ?((?:\d{1,7}(?:\.\d{1,12})? ?[a-z]{1,12} ?){1,4})",
    re.IGNORECASE,
)
_TIME = re.compile(r"(?<![\d.])(\d{1,7}(?:\.\d{1,12})?) ?(ms|milli|h|m|s)", re.IGNORECASE)
_UNIT_SECONDS: Mapping[str, float] = {"h": 3600, "m": 60, "s": 1, "ms": 0.001, "milli": 0.001}


def _told_wait(words: str) -> float | None:
    """Returns the wait in seconds that an error message states, such as "try again in 1m2.5s", or None."""
    told = _TOLD_WAIT.search(words)
    times = _TIME.findall(told[1]) if told else ()
    seconds = sum(float(number) * _UNIT_SECONDS[unit.lower()] for number, unit in times)
    return min(seconds, RETRY_AFTER_SECONDS_MAX) or None
