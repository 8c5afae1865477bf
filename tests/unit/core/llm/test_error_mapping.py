"""What the words of providers' errors mean, whatever their status says."""

import pytest

from core.domain.errors import AnswerRejected, ContextOverflow, ModelRejected, ModelUnavailable
from core.llm import error_mapping
from core.llm.error_mapping import (
    BAD_REQUEST,
    CONTENT_REJECTED,
    CONTEXT_OVERFLOW,
    KEY_REJECTED,
    NO_CREDIT,
    NO_TOOL_CALLS,
    RETRY_AFTER_SECONDS_MAX,
    UNREADABLE_CALL,
    ErrorResponse,
    to_model_error,
)
from core.llm.openai_answer import parse_error_body
from tests.support.narrow import require_type

OVERDUE = "Your credit balance is too low to access the API. Please add credits."
SUSPENDED = "Your account is suspended due to insufficient balance, please recharge it"
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
NO_QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("status", "code", "message", "sentence"),
    [
        (400, "invalid_request_error", OVERDUE, NO_CREDIT),
        (429, "exceeded_current_quota_error", SUSPENDED, NO_CREDIT),
        (429, "", SUSPENDED, NO_CREDIT),
        (429, "insufficient_quota", NO_QUOTA, NO_CREDIT),
        (403, "exceeded_current_quota_error", "The account is not active", NO_CREDIT),
        (402, "invalid_request_error", "Insufficient Balance", NO_CREDIT),
        (400, "Arrearage", "Access denied", NO_CREDIT),
        (0, "402", "Insufficient credits. Add more.", NO_CREDIT),
        (400, "400", "API key not valid. Please pass a valid API key.", KEY_REJECTED),
        (400, "", "API key expired. Please renew the API key.", KEY_REJECTED),
        (400, "", "Incorrect API key provided: sk-x", KEY_REJECTED),
        (403, "", "Your API key was reported as leaked.", KEY_REJECTED),
        (400, "invalid_request_error", "The balance of the tree is too low", BAD_REQUEST),
        (0, "invalid_request_error", "temperature must be below 2", BAD_REQUEST),
        (400, "", "registry.ollama.ai/library/m does not support tools", NO_TOOL_CALLS),
        (404, "", "No endpoints found that support tool use. To learn more, visit: https://x", NO_TOOL_CALLS),
        (400, "", NO_PARSER, NO_TOOL_CALLS),
        (500, "", "tools param requires --jinja flag", NO_TOOL_CALLS),
        (400, "", "`tool calling` is not supported with this model", NO_TOOL_CALLS),
        (400, "", "Function calling is not enabled for models/m", NO_TOOL_CALLS),
        (400, "", "This model doesn't support function calling.", NO_TOOL_CALLS),
        (400, "", "tools is not supported in this model. For a list of supported models, refer to x", NO_TOOL_CALLS),
        (400, "", "Unsupported parameter: 'tools' is not supported with this model.", NO_TOOL_CALLS),
        (500, "", "Unsupported param: tools", NO_TOOL_CALLS),
        (400, "", "<400> InternalError.Algo.InvalidParameter: The tool call is not supported.", NO_TOOL_CALLS),
        (400, "", "model features function calling not support", NO_TOOL_CALLS),
        (405, "", "deepinfra error: Tool calling is not supported for model: m", NO_TOOL_CALLS),
        (400, "invalid_prompt", "Invalid prompt: it may violate our usage policy.", CONTENT_REJECTED),
        (403, "403", "Your request was blocked by moderation", CONTENT_REJECTED),
        (403, "403", "Your chosen model requires moderation and your input was flagged", CONTENT_REJECTED),
    ],
)
def test_what_another_try_does_not_mend_is_told_as_what_it_is_and_not_retried(
    status: int, code: str, message: str, sentence: str
) -> None:
    error = to_model_error(ErrorResponse(status=status, code=code, message=message))
    assert type(error) is ModelRejected
    assert str(error) == sentence


@pytest.mark.parametrize(
    "message",
    [
        "tool_choice is not supported",
        "parallel_tool_calls is not supported.",
        "m does not support tool_choice",
        "Unsupported parameter: 'tool_choice'",
        "Unsupported param: tools_strict",
    ],
)
def test_an_option_of_tool_calls_that_is_refused_is_no_more_than_that(message: str) -> None:
    assert str(to_model_error(ErrorResponse(status=400, message=message))) == BAD_REQUEST


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "tool_use_failed", "Failed to call a function."),
        (400, "output_parse_failed", "Parsing failed."),
        (0, "", '{"code":"tool_use_failed","failed_generation":"API key not valid"}'),
        (500, "", "error parsing tool call: raw='ls', err=invalid character"),
        (500, "", "Failed to parse tool call arguments as JSON"),
    ],
)
def test_a_call_that_cannot_be_read_is_the_models_own_slip(status: int, code: str, message: str) -> None:
    error = require_type(to_model_error(ErrorResponse(status=status, code=code, message=message)), AnswerRejected)
    assert str(error) == UNREADABLE_CALL


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (422, "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens"),
        (400, "too many tokens: size limit exceeded by 11326 tokens."),
        (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
        (400, "Range of input length should be [1, 30720]"),
        (400, "Your request exceeded model token limit: 131072 (requested: 140000)"),
        (400, "Prompt exceeds max length"),
        (400, "prompt token count of 129000 exceeds the limit of 128000"),
        (400, "The decoder prompt (length 8193) is longer than the maximum model length of 8192."),
        (400, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
        (400, "litellm.ContextWindowExceededError: it is too large"),
        (0, "Trying to keep the first 9 tokens when context the overflows. The context length of 4"),
        (429, "Request too large for m on tokens per min (TPM): Limit 30000, Requested 41000."),
        (413, "Request too large for model `m` on tokens per minute (TPM): Limit 6000."),
    ],
)
def test_a_request_that_is_too_long_is_known_by_the_words_of_each_service(status: int, message: str) -> None:
    code = "rate_limit_exceeded" if "TPM" in message else ""
    assert isinstance(to_model_error(ErrorResponse(status=status, code=code, message=message)), ContextOverflow)


OPENROUTER = "Provider returned error"


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ('{"error":{"message":"the maximum context length is 8 tokens"}}', CONTEXT_OVERFLOW),
        ({"error": {"message": "model features function calling not support"}}, NO_TOOL_CALLS),
        ("upstream says insufficient balance", BAD_REQUEST),
        ("Incorrect API key provided: sk-x", BAD_REQUEST),
    ],
)
def test_what_the_upstream_provider_says_counts_unless_it_is_about_its_account(raw: object, sentence: str) -> None:
    body = {"error": {"message": OPENROUTER, "code": 400, "metadata": {"raw": raw}}}
    error = to_model_error(parse_error_body(body, status=400))
    assert str(error) == sentence
    assert str(raw) in error.detail


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "44.5s"}]}, 44.5),
        ({"metadata": {"raw": "m is rate-limited upstream. Please retry in 12s"}}, 12),
    ],
)
def test_a_wait_that_stands_beside_the_message_is_kept(more: object, seconds: float) -> None:
    assert isinstance(more, dict)
    body = {"error": {"code": 429, "message": "You exceeded your current quota.", **more}}
    error = require_type(to_model_error(parse_error_body(body, status=429)), ModelUnavailable)
    assert error.retry_after_seconds == seconds


def test_a_full_context_is_still_known_by_its_words() -> None:
    told = ErrorResponse(status=400, message="This model's maximum context length is 8 tokens")
    assert isinstance(to_model_error(told), ContextOverflow)


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached. Please try again in 20s.", 20),
        ("Please try again in 7m12.5s. Visit the console.", 432.5),
        ("Please try again in 600ms", 0.6),
        ("request reached max request: 3, please try again after 1 seconds", 1),
        ("You exceeded your current quota. Please retry in 17.25s.", 17.25),
        ('"retryDelay": "31s"', 31),
        ("Please retry after 2 minutes", 120),
        ("try again in 1h", RETRY_AFTER_SECONDS_MAX),
        ("try again in 9999999h", RETRY_AFTER_SECONDS_MAX),
        ("Please try again later", None),
        ("try again in 0s", None),
    ],
)
def test_the_wait_is_read_from_the_words_if_no_header_states_it(message: str, seconds: float | None) -> None:
    error = require_type(to_model_error(ErrorResponse(status=429, message=message)), ModelUnavailable)
    assert error.retry_after_seconds == seconds
    header = to_model_error(ErrorResponse(status=429, message=message, retry_after_seconds=3))
    assert isinstance(header, ModelUnavailable)
    assert header.retry_after_seconds == 3


def test_only_the_beginning_of_a_long_message_is_searched() -> None:
    words = "x" * error_mapping.WORDS_CHARACTERS_MAX + OVERDUE
    assert str(to_model_error(ErrorResponse(status=400, message=words))) == BAD_REQUEST
