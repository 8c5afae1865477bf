"""How the API says no: every error is `{"error": <code>, "message": <sentence>}` with a fitting status."""

import errno
import logging
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler

from core.errors import SandboxUnavailable, StorageUnavailable

log = logging.getLogger(__name__)

_BY_STATUS = {
    400: ("bad_request", "The request cannot be understood."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take that method."),
    413: ("too_large", "The body is too large."),
}


class Refusal(Exception):
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
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns whatever a handler raises into an answer; a bug is logged once and told without any detail."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return refused(refusal)
    except web.HTTPException as error:
        return _refused_by_framework(error)
    except SandboxUnavailable as error:
        log.warning("no sandbox for %s: %s", _route(request), error.detail or error)
        return refused(Refusal(503, "sandbox_unavailable", str(error)))
    except StorageUnavailable:
        log.exception("the database failed under %s", _route(request))
        sentence = "The database does not answer; nothing was stored. Try again."
        return refused(Refusal(503, "storage_unavailable", sentence))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            return _broken(request)
        log.error("the disk is full: %s", _route(request))  # noqa: TRY400 - the trace says no more
        return refused(
            Refusal(507, "disk_full", "The server has no room left; nothing was stored.")
        )
    except Exception:  # noqa: BLE001,RUF100 - the edge: a caller gets an answer, the operator the trace
        return _broken(request)


def refused(refusal: Refusal) -> web.Response:
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


def _broken(request: web.Request) -> web.Response:
    log.exception("a request to %s broke", _route(request))
    return refused(Refusal(500, "internal", "Something broke on our side."))


def _refused_by_framework(error: web.HTTPException) -> web.StreamResponse:
    if error.status < HTTPStatus.BAD_REQUEST:
        return error
    fallback = (
        HTTPStatus(error.status).phrase.lower().replace(" ", "_"),
        "The request was refused.",
    )
    code, message = _BY_STATUS.get(error.status, fallback)
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    return refused(Refusal(error.status, code, message, headers=headers))
