"""A client for web services, with retries, and with errors that tell the model what to do."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import (
    BytesIOPayload,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    FormData,
    hdrs,
)
from pydantic import JsonValue

from core.domain.errors import ToolError
from core.failpoints import Failpoint
from core.web_access.download import USER_AGENT

log = logging.getLogger(__name__)

_REQUEST = Failpoint("outside.request")
_PIECE_BYTES = 1 << 16
_WAIT_SECONDS_MAX = 5.0
_DETAIL_CHARACTERS_MAX = 300
_PASSING = frozenset((429, 500, 502, 503, 504))
_USED_UP = frozenset((402, 432, 433))
"""Statuses for a used-up quota. 432 and 433 are Tavily's, for the limits of the plan and of pay-as-you-go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceApi:
    """The HTTP API of a web service. `name` is for messages; `url` has no slash at its end.

    `headers` contain the key. `key_remedy` names another possible cause if the key is rejected.
    """

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    seconds_max: float = 60
    bytes_max: int = 10_000_000
    pause_seconds: float = 1.0
    key_remedy: str = ""


class ApiRefused(ToolError):
    """Raised if the service refused the request. `status` is the HTTP status."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A request with at most one of `body` (sent as JSON) and `form` (its bytes values are sent as files).

    `is_repeatable`: repeating the request after an unclear failure is safe."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: JsonValue = None
    form: Mapping[str, str | bytes] | None = None
    is_repeatable: bool = True


async def request_json(api: ServiceApi, request: ServiceRequest) -> JsonValue:
    """Sends a request and returns the response as JSON. Raises ToolError, and ApiRefused if the service refuses."""
    content = await send_request(api, request)
    try:
        answer: JsonValue = json.loads(content)
    except (ValueError, RecursionError) as error:
        log.warning("%s answered with something else than JSON", api.name)
        raise ToolError(
            f"{api.name} answered with something that cannot be read. Try it later, or use another way."
        ) from error
    return answer


async def send_request(api: ServiceApi, request: ServiceRequest) -> bytes:
    """Sends a request and returns the body. Retries a temporary failure once, unless the service asks to wait longer.

    Raises ToolError.
    """
    with _REQUEST:
        failure, content = await _tried(api, request)
        if failure is not None and failure.may_pass_soon:
            await asyncio.sleep(failure.wait_seconds or api.pause_seconds)
            failure, content = await _tried(api, request)
    if failure is not None:
        raise failure.error
    return content


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed attempt. `wait_seconds` is None if a retry is pointless, 0 if the service names no time."""

    error: ToolError
    wait_seconds: float | None = None

    @property
    def may_pass_soon(self) -> bool:
        return self.wait_seconds is not None and self.wait_seconds <= _WAIT_SECONDS_MAX


async def _tried(api: ServiceApi, request: ServiceRequest) -> tuple[_Failure | None, bytes]:
    timeout = ClientTimeout(total=api.seconds_max)
    again = 0.0 if request.is_repeatable else None
    try:
        payload: BytesIOPayload | FormData | None = None
        if request.form is not None:
            payload = FormData(default_to_multipart=True)
            for name, value in request.form.items():
                payload.add_field(name, value, filename=name if isinstance(value, bytes) else None)
        elif request.body is not None:
            content = io.BytesIO(json.dumps(request.body).encode())
            payload = BytesIOPayload(content, content_type="application/json")
        async with (
            ClientSession(cookie_jar=DummyCookieJar(), timeout=timeout) as session,
            session.request(
                request.method,
                f"{api.url}{request.path}",
                params=request.query or None,
                data=payload,
                headers={hdrs.USER_AGENT: USER_AGENT, **api.headers},
                allow_redirects=False,  # so that the key is sent only to the host that the operator configured
            ) as response,
        ):
            body = bytearray()
            async for piece in response.content.iter_chunked(_PIECE_BYTES):
                body += piece
                if len(body) > api.bytes_max:
                    megabytes = api.bytes_max // 1_000_000
                    raise ToolError(f"{api.name} answered with more than {megabytes} MB. Ask for less.")
            return _failure(response, bytes(body), api, again), bytes(body)
    except TimeoutError:
        log.warning("%s did not answer within %g s", api.name, api.seconds_max)
        said = f"{api.name} did not answer within {api.seconds_max:g} s. Try it later, or use another way."
        return _Failure(ToolError(said)), b""
    except (ClientError, OSError, ValueError) as error:
        log.warning("%s cannot be reached: %s", api.name, type(error).__name__)
        said = f"{api.name} cannot be reached. Try it later, or use another way."
        return _Failure(ToolError(said), again), b""


def _failure(response: ClientResponse, content: bytes, api: ServiceApi, again: float | None) -> _Failure | None:
    status, name = response.status, api.name
    if 200 <= status < 300:
        return None
    log.warning("%s answered %d", name, status)
    text = response.headers.get(hdrs.RETRY_AFTER, "")
    wait = min(float(text), 86_400.0) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else 0.0
    if status in (401, 403):
        remedy = f"; {api.key_remedy}" if api.key_remedy else ""
        said = (
            f"{name} does not accept the key that it is asked with ({status}){remedy}. Only the operator can correct"
            " that: tell the people so, and go on without it."
        )
    elif status in _USED_UP:
        said = (
            f"The plan at {name} is used up ({status}). Only the operator can change that: tell the people so, and"
            " go on without it."
        )
    elif status == 429:
        when = f"in {wait:g} s" if wait else "later"
        said = f"{name} takes no more requests just now (429). Try it again {when}, or use another way."
        again = wait
    elif status in _PASSING:
        said = f"{name} does not work just now ({status}). Try it later, or use another way."
        again = None if again is None else wait
    else:
        # the error text in the service's response on one line, without the key
        detail = content[: 4 * _DETAIL_CHARACTERS_MAX].decode("utf-8", "replace")
        for value in api.headers.values():
            for secret in (value, value.rpartition(" ")[2]):
                detail = detail.replace(secret, "…") if len(secret) > 3 else detail
        words = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", detail).split())
        detail = words[:_DETAIL_CHARACTERS_MAX].rstrip(".")
        said = f"{name} refused the request ({status}){f': {detail}' if detail else ''}. Change it, or use another way."
    is_passing = status in _PASSING
    return _Failure(ApiRefused(said, status=status), again if is_passing else None)
