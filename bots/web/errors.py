"""Error responses. The body is `{"error": <code>, "message": <sentence>}`, or a page for users who open a link."""

import errno
import html
import logging
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from core.domain.errors import SandboxUnavailable, StorageUnavailable, SurfaceError, SurfaceRefused

log = logging.getLogger(__name__)

_BY_STATUS = {
    400: ("bad_request", "The request cannot be understood."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take that method."),
    413: ("too_large", "The body is too large."),
}
_API_PATHS = ("/api/", "/healthz", "/readyz", "/metrics")
_HEADINGS = {
    "link_expired": "This link has expired",
    "handed_back": "This link has done its work",
    "taken": "This link is in use elsewhere",
    "not_found": "Nothing is here",
    "file_not_found": "This file is not here",
    "nothing_listens": "Nothing answers here just now",
}
_NEW_LINK = "Write to the agent in the thread where you found the link, and ask for a new one."
_CLOSE = "You can close this page. The agent writes in the thread if it needs you again."
_LATER = "Try it again in a minute. If it stays like this, tell the person who runs this bot."
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{heading}</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ margin: 0; background: light-dark(#f4f5f7, #16181d); color: light-dark(#1d2129, #e8eaee); }}
main {{ max-width: 34rem; margin: 15vh auto 0; padding: 0 1.5rem; }}
h1 {{ font-size: 1.5rem; }}
</style>
</head>
<body>
<main>
  <h1>{heading}</h1>
  <p>{message}</p>
  {form}<p>{next_step}</p>
</main>
</body>
</html>
"""


class ApiError(Exception):
    """An error that becomes an API response. `message` is a sentence for the API client."""

    def __init__(self, status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Converts exceptions of handlers into error responses.

    Unexpected exceptions are logged, and their details are not sent. If part of a response is already sent, the
    connection is aborted, because the client would read an error response as the rest of the body."""
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001,RUF100 - outermost: the caller gets a response, the log the traceback
        has_started = request.writer.output_size > 0
        if has_started and request.transport is not None:
            request.transport.abort()
        if isinstance(error, ConnectionError) and (has_started or request.transport is None):
            log.debug("the client of %s has disconnected", _route(request))
            return web.Response()
        if isinstance(error, web.HTTPException) and error.status < HTTPStatus.BAD_REQUEST:
            return error
        shown = _to_api_error(error, request)
        # if a browser opened the link for a person, the response is a page
        wants_page = request.method == "GET" and "text/html" in request.headers.get("Accept", "")
        return error_page(shown) if wants_page and not request.path.startswith(_API_PATHS) else error_response(shown)


def _to_api_error(error: Exception, request: web.Request) -> ApiError:
    match error:
        case ApiError():
            return error
        case web.HTTPException() | web.RequestPayloadError() | HttpProcessingError():
            if not isinstance(error, web.HTTPException):
                # the request body is incomplete or cannot be decompressed
                return ApiError(400, *_BY_STATUS[400])
            fallback = (HTTPStatus(error.status).phrase.lower().replace(" ", "_"), "The request was refused.")
            code, message = _BY_STATUS.get(error.status, fallback)
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
            return ApiError(error.status, code, message, headers=headers)
        case SandboxUnavailable():
            log.warning("no sandbox for %s: %s", _route(request), error.detail or error)
            return ApiError(503, "sandbox_unavailable", str(error))
        case SurfaceRefused():
            return ApiError(409, "chat_refused", f"The chat did not take it: {error}.")
        case SurfaceError():
            return ApiError(503, "chat_unavailable", "The chat cannot be reached just now.")
        case StorageUnavailable():
            log.exception("the database failed under %s", _route(request))
            sentence = "The database does not answer. Try again, with the same Idempotency-Key if you sent one."
            return ApiError(503, "storage_unavailable", sentence)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            log.error("the disk is full: %s", _route(request))
            return ApiError(507, "disk_full", "The server has no room left; nothing was stored.")
        case _:
            log.exception("a request to %s broke", _route(request))
            return ApiError(500, "internal", "Something broke on our side.")


def error_response(error: ApiError) -> web.Response:
    return web.json_response(
        {"error": error.code, "message": error.message}, status=error.status, headers=error.headers
    )


def error_page(error: ApiError) -> web.Response:
    """Returns the error as a page that explains what happened to the link and what to do."""
    is_fault = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    heading = _HEADINGS.get(error.code, "This does not work just now" if is_fault else "This link is of no use")
    next_step = _LATER if is_fault else _CLOSE if error.code == "handed_back" else _NEW_LINK
    page = message_page(heading, error.message, next_step, status=error.status)
    page.headers.update(error.headers or {})
    return page


def message_page(heading: str, message: str, next_step: str, *, status: int = 200, button: str = "") -> web.Response:
    """Returns a page for users. If `button` is not empty, a button of that name posts to the page's own address."""
    form = f'<form method="post"><button>{html.escape(button)}</button></form>\n  '
    text = _PAGE.format(
        heading=html.escape(heading),
        message=html.escape(message),
        next_step=html.escape(next_step),
        form=form if button else "",
    )
    headers = dict(_PAGE_HEADERS)
    if button:
        # browsers apply form-action to the redirects after the post, too, which may lead to any server
        policy = headers["Content-Security-Policy"].replace(" form-action 'none';", "")
        headers["Content-Security-Policy"] = policy
    return web.Response(text=text, status=status, content_type="text/html", headers=headers)


def _route(request: web.Request) -> str:
    """Returns the URL pattern of the route for logs. The actual path may contain a signed token or a file name."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "no route"
