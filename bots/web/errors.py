"""How the API says no: every error is `{"error": <code>, "message": <sentence>}` with a fitting status."""

import errno
import logging
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler

from core.domain.errors import SandboxUnavailable, StorageUnavailable

log = logging.getLogger(__name__)

_BY_STATUS = {
    400: ("bad_request", "The request cannot be understood."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take that method."),
    413: ("too_large", "The body is too large."),
}


class ApiError(Exception):
    """An answer other than success; `message` is one sentence for the caller."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns whatever a handler raises into an answer; a bug is logged once and told without any detail.

    An answer that has begun is broken off: a second one would be taken for what is left of the first.
    """
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001,RUF100 - the edge: a caller gets an answer, the operator the trace
        has_begun = request.writer.output_size > 0
        if has_begun and request.transport is not None:
            request.transport.abort()
        if has_begun and isinstance(error, ConnectionError):
            log.debug("the reader of %s is gone", _route(request))
            return web.Response()
        return _answer_to(error, request)


def _answer_to(error: Exception, request: web.Request) -> web.StreamResponse:
    match error:
        case ApiError():
            return error_response(error)
        case web.HTTPException() | web.RequestPayloadError():
            return _refused_by_framework(error)
        case SandboxUnavailable():
            log.warning("no sandbox for %s: %s", _route(request), error.detail or error)
            return error_response(ApiError(503, "sandbox_unavailable", str(error)))
        case StorageUnavailable():
            log.exception("the database failed under %s", _route(request))
            sentence = "The database does not answer; nothing was stored. Try again."
            return error_response(ApiError(503, "storage_unavailable", sentence))
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            log.error("the disk is full: %s", _route(request))
            return error_response(
                ApiError(507, "disk_full", "The server has no room left; nothing was stored.")
            )
        case _:
            log.exception("a request to %s broke", _route(request))
            return error_response(ApiError(500, "internal", "Something broke on our side."))


def error_response(refusal: ApiError) -> web.Response:
    """The refusal as a response."""
    return web.json_response(
        {"error": refusal.code, "message": refusal.message},
        status=refusal.status,
        headers=refusal.headers,
    )


def _route(request: web.Request) -> str:
    """The pattern of the address: the address itself may be a signed link, or name a file."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "no route"


def _refused_by_framework(
    error: web.HTTPException | web.RequestPayloadError,
) -> web.StreamResponse:
    if isinstance(error, web.RequestPayloadError):
        # a body that does not unpack, or breaks off
        return error_response(ApiError(400, *_BY_STATUS[400]))
    if error.status < HTTPStatus.BAD_REQUEST:
        return error
    fallback = (
        HTTPStatus(error.status).phrase.lower().replace(" ", "_"),
        "The request was refused.",
    )
    code, message = _BY_STATUS.get(error.status, fallback)
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    return error_response(ApiError(error.status, code, message, headers=headers))
