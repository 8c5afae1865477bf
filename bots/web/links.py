"""Signed links to a sandbox: to a file, a preview of a web page, the browser, and a port.

Signed links work without the API token. All of them expire, except links to ports."""

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import quote, urlsplit

from bots.web.auth import is_loopback_host
from bots.web.errors import ApiError
from core.domain.errors import ConfigurationError

LINK_SECONDS = 7 * 24 * 3600
TAKEOVER_SECONDS = 30 * 60
_FILE, _PREVIEW = b"threadhand file link\0", b"threadhand preview\0"
_TAKEOVER = b"threadhand takeover\0"


@dataclass(slots=True)
class SignedLinks:
    """Creates signed links. The caller may set `public_url` later, when the server's port is known."""

    secret: bytes
    public_url: str
    expose_domain: str = ""

    def port_url(self, thread_id: str, port: int) -> str | None:
        """Returns the URL of a port of the thread's sandbox, or None if this server cannot expose ports.

        The URL is valid as long as the thread exists."""
        domain, public_url = self.expose_domain, self.public_url
        try:
            label = sign_port_label(self.secret, thread_id, port)
            base_url = urlsplit(public_url)
            local_port = base_url.port
        except ValueError:
            return None
        if domain:
            scheme = "http" if exposed_ports_domain(domain, public_url).endswith(LOCAL_DOMAIN) else "https"
            return f"{scheme}://{label}.{domain}/"
        if not exposed_ports_domain(domain, public_url) or not public_url:
            return None
        return f"{base_url.scheme}://{label}.{LOCAL_DOMAIN}{f':{local_port}' if local_port else ''}/"

    def file_url(self, thread_id: str, path: str, *, expires_at: float | None = None) -> str | None:
        """Returns a download URL for a file, valid for a week unless `expires_at` (a Unix time) is given. Returns None
        if `public_url` is empty."""
        return self._sign("files", _FILE, [thread_id, path], expires_at or time.time() + LINK_SECONDS)

    def page_preview_url(self, thread_id: str, path: str, *, expires_at: float | None = None) -> str | None:
        """Returns a URL that shows a web page from the workspace, including files that the page uses. The token in it
        gives access to the whole workspace.

        The URL is valid for a week unless `expires_at` (a Unix time) is given. Returns None if `public_url` is
        empty."""
        url = self._sign("preview", _PREVIEW, [thread_id], expires_at or time.time() + LINK_SECONDS)
        return url and f"{url}/{quote(path)}"

    def takeover_url(self, thread_id: str, *, expires_at: float | None = None) -> str | None:
        """Returns a new URL of a page on which the first user who presses the start button takes control of the
        thread's browser.

        The URL is valid for half an hour unless `expires_at` (a Unix time) is given. Returns None if `public_url` is
        empty."""
        end = expires_at or time.time() + TAKEOVER_SECONDS
        return self._sign("takeover", _TAKEOVER, [thread_id], end, secrets.token_hex(8))

    def _sign(self, folder: str, purpose: bytes, subject: list[str], expires_at: float, *salt: str) -> str | None:
        if not self.public_url:
            return None
        token = _signed_token(self.secret, purpose, [*subject, int(expires_at), *salt])
        return f"{self.public_url.rstrip('/')}/{folder}/{token}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverLink:
    """The content of a take-over link. `key` identifies the link and is part of its URL."""

    thread_id: str
    expires_at: float
    key: str


def local_server_url(host: str, port: int) -> str:
    """Returns the server's URL on its own machine, which is used if no public URL is configured."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - these addresses are replaced
    name = everywhere.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def verify_file_link(secret: bytes, token: str, *, now: float | None = None) -> tuple[str, str]:
    """Returns the sandbox ID and path in a token.

    Raises ApiError 404 if the token is invalid, and ApiError 410 if it is expired. `now` is a Unix time, for tests."""
    sandbox_id, path, expires_at = cast(tuple[str, str, int], _verified_content(secret, _FILE, token))
    _check_time(expires_at, now)
    return sandbox_id, path


def verify_preview_link(secret: bytes, token: str, *, now: float | None = None) -> str:
    """Returns the sandbox ID in a token. Raises ApiError 404 if the token is invalid, and 410 if it is expired."""
    sandbox_id, expires_at = cast(tuple[str, int], _verified_content(secret, _PREVIEW, token))
    _check_time(expires_at, now)
    return sandbox_id


def verify_takeover_link(secret: bytes, token: str, *, now: float | None = None) -> TakeoverLink:
    """Returns the content of a take-over token.

    Raises ApiError 404 if the token is invalid, and ApiError 410 if it is expired."""
    thread_id, expires_at, _ = cast(tuple[str, int, str], _verified_content(secret, _TAKEOVER, token))
    _check_time(expires_at, now)
    return TakeoverLink(thread_id=thread_id, expires_at=expires_at, key=token.partition(".")[2])


def load_link_secret(folder: Path, given: str = "") -> bytes:
    """Returns the secret that signs links: `given` if it is not empty, otherwise the secret stored in `folder`.

    Creates the stored secret on the first call, in a file that only its owner can read. Raises ConfigurationError if
    the folder cannot be read or written."""
    if given:
        return given.encode()
    try:
        file = folder / "link.secret"
        with suppress(FileNotFoundError):
            kept = file.read_bytes()
            if kept:
                return kept
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"link.secret.{secrets.token_hex(4)}"
        try:
            fresh.touch(mode=0o600)
            fresh.write_bytes(secrets.token_bytes(32))
            with suppress(FileExistsError):
                file.hardlink_to(fresh)  # if several processes create the secret, the first one wins
        finally:
            fresh.unlink(missing_ok=True)
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"The data folder {folder} cannot be used: {error.strerror}.") from error


def _signed_token(secret: bytes, purpose: bytes, content: list[str | int]) -> str:
    claim = json.dumps(content, separators=(",", ":")).encode()
    return f"{_encode(claim)}.{_encode(_sign(secret, purpose, claim))}"


def _verified_content(secret: bytes, purpose: bytes, token: str) -> object:
    payload, _, signature = token.partition(".")
    try:
        claim = base64.b64decode(payload + "=" * (-len(payload) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise ApiError(404, "not_found", "This link is not one of ours.") from None
    # Compare text, not bytes, because several base64 texts decode to the same bytes, and the key of a take-over link
    # must be unique.
    right = _encode(_sign(secret, purpose, claim))
    if not hmac.compare_digest(signature.encode(errors="replace"), right.encode()):
        raise ApiError(404, "not_found", "This link is not one of ours.")
    return json.loads(claim)


def _check_time(expires_at: int, now: float | None) -> None:
    if expires_at < (time.time() if now is None else now):
        raise ApiError(410, "link_expired", "It has expired: links work for a limited time.")


def _sign(secret: bytes, purpose: bytes, claim: bytes) -> bytes:
    return hmac.digest(secret, purpose + claim, hashlib.sha256)


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


_PORT = b"threadhand port\0"
_SIGNATURE_BYTES = 16
_CLAIM_BYTES = 18
_LABEL = re.compile(r"[a-z2-7]{55}")
"""Matches the host name label of an exposed port: base32 of thread ID (16 bytes), port (2) and signature (16).

The label must fit into the 63 characters of a DNS label."""
LOCAL_DOMAIN = "localhost"
"""Browsers resolve all subdomains of localhost to their own machine (RFC 6761, section 6.3)."""


def exposed_ports_domain(domain: str, public_url: str) -> str:
    """Returns the parent domain of exposed ports, or an empty string if ports cannot be exposed.

    If no domain is configured, returns `localhost`, unless `public_url` names another machine."""
    if domain:
        return (urlsplit(f"//{domain}").hostname or "").lower()
    host = urlsplit(public_url).hostname or ""
    return LOCAL_DOMAIN if not public_url or is_loopback_host(host) else ""


def port_label_from_host(host_header: str, host: str) -> str:
    """Returns the label of an exposed port from a Host header, or an empty string for other host names.

    `host` is the parent domain of exposed ports."""
    try:
        name = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return ""
    label, _, rest = name.rstrip(".").partition(".")
    return label if host and rest == host and _LABEL.fullmatch(label) else ""


def sign_port_label(secret: bytes, thread_id: str, port: int) -> str:
    """Returns the signed host name label for a port of a thread's sandbox.

    Raises ValueError if `thread_id` is not a UUID."""
    claim = uuid.UUID(thread_id).bytes + port.to_bytes(2, "big")
    signature = hmac.digest(secret, _PORT + claim, hashlib.sha256)[:_SIGNATURE_BYTES]
    return base64.b32encode(claim + signature).rstrip(b"=").decode().lower()


def verify_port_label(secret: bytes, label: str) -> tuple[str, int]:
    """Returns the thread ID and port in a signed label. Raises ApiError 404 if the signature is wrong."""
    try:
        claim = base64.b32decode(label.upper() + "=" * (-len(label) % 8))[:_CLAIM_BYTES]
        thread_id, port = str(uuid.UUID(bytes=claim[:16])), int.from_bytes(claim[16:], "big")
    except ValueError:
        raise ApiError(404, "not_found", "This address is not one of ours.") from None
    if not hmac.compare_digest(sign_port_label(secret, thread_id, port), label):
        raise ApiError(404, "not_found", "This address is not one of ours.")
    return thread_id, port
