"""Error responses of the API. The body is `{"error": <code>, "message": <sentence>}`."""

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
    """An error that becomes an API response. `message` is a sentence for the API client."""

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
    """Converts exceptions of handlers into error responses.

    Unexpected exceptions are logged, and their details are not sent. If part of a response is already sent, the
    connection is aborted, because the client would read an error response as the rest of the body.
    """
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001,RUF100 - outermost: the caller gets a response, the log the traceback
        has_started = request.writer.output_size > 0
        if has_started and request.transport is not None:
            request.transport.abort()
        if has_started and isinstance(error, ConnectionError):
            log.debug("the client of %s has disconnected", _route(request))
            return web.Response()
        return _response_to(error, request)


def _response_to(error: Exception, request: web.Request) -> web.StreamResponse:
    match error:
        case ApiError():
            return error_response(error)
        case web.HTTPException() | web.RequestPayloadError():
            return _framework_error_response(error)
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


def error_response(error: ApiError) -> web.Response:
    return web.json_response(
        {"error": error.code, "message": error.message},
        status=error.status,
        headers=error.headers,
    )


def _route(request: web.Request) -> str:
    """Returns the URL pattern of the route for logs. The actual path may contain a signed token or a file name."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "no route"


def _framework_error_response(
    error: web.HTTPException | web.RequestPayloadError,
) -> web.StreamResponse:
    if isinstance(error, web.RequestPayloadError):
        # the request body is incomplete or cannot be decompressed
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
