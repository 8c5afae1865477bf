"""Signed links into a sandbox: to a file, a preview of the workspace, its browser, and its ports.

They work without a token; all but the links to ports expire.
"""

import base64
import binascii
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

from bots.web.auth import is_loopback
from bots.web.errors import ApiError
from core.domain.errors import ConfigurationError

LINK_SECONDS = 7 * 24 * 3600
TAKEOVER_SECONDS = 30 * 60
_FILE, _PREVIEW = b"threadhand file link\0", b"threadhand preview\0"
_TAKEOVER = b"threadhand takeover\0"


@dataclass(slots=True)
class SignedLinks:
    """Makes links. `public_url` may be set after construction, once the server's port is known."""

    secret: bytes
    public_url: str
    expose_domain: str = ""

    def port(self, thread_id: str, port: int) -> str | None:
        """Returns the URL of a port of the thread's sandbox, valid as long as the thread exists."""
        return port_url(
            self.secret, thread_id, port, domain=self.expose_domain, public_url=self.public_url
        )

    def file(self, thread_id: str, path: str) -> str | None:
        """Returns a URL that downloads one file for a week. None without a public URL."""
        if not self.public_url:
            return None
        return sign_file_link(
            self.secret, self.public_url, thread_id, path, expires_at=_week_from_now()
        )

    def preview(self, thread_id: str, path: str) -> str | None:
        """Returns a URL that shows a page of the workspace and the files it refers to. None without a public URL."""
        if not self.public_url:
            return None
        return sign_preview_link(
            self.secret, self.public_url, thread_id, path, expires_at=_week_from_now()
        )

    def takeover(self, thread_id: str) -> str | None:
        """Returns a URL that gives the thread's browser to the first person to start there, within half an hour.

        None without a public URL."""
        if not self.public_url:
            return None
        return sign_takeover_link(
            self.secret, self.public_url, thread_id, expires_at=time.time() + TAKEOVER_SECONDS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverLink:
    """`key` identifies the link; it is part of the URL."""

    thread_id: str
    expires_at: float
    key: str


def local_url(host: str, port: int) -> str:
    """The server's URL on its own machine, for when no public URL is set."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - these addresses are replaced
    name = everywhere.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _week_from_now() -> float:
    return time.time() + LINK_SECONDS


def sign_file_link(
    secret: bytes, public_url: str, sandbox_id: str, path: str, *, expires_at: float
) -> str:
    """Returns a URL that downloads the file until `expires_at` (Unix time)."""
    token = _signed_token(secret, _FILE, [sandbox_id, path, int(expires_at)])
    return f"{public_url.rstrip('/')}/files/{token}"


def verify_file_link(secret: bytes, token: str, *, now: float | None = None) -> tuple[str, str]:
    """Returns the token's sandbox id and path. Raises ApiError: 404 for an invalid token, 410 for an expired one."""
    sandbox_id, path, expires_at = cast(
        tuple[str, str, int], _verified_content(secret, _FILE, token)
    )
    _check_time(expires_at, now)
    return sandbox_id, path


def sign_preview_link(
    secret: bytes, public_url: str, sandbox_id: str, path: str, *, expires_at: float
) -> str:
    """Returns a URL that shows a page and its neighbours. The token covers the whole workspace, not only the path."""
    token = _signed_token(secret, _PREVIEW, [sandbox_id, int(expires_at)])
    return f"{public_url.rstrip('/')}/preview/{token}/{quote(path)}"


def verify_preview_link(secret: bytes, token: str, *, now: float | None = None) -> str:
    """Returns the token's sandbox id. Raises as `verify_file_link`."""
    sandbox_id, expires_at = cast(tuple[str, int], _verified_content(secret, _PREVIEW, token))
    _check_time(expires_at, now)
    return sandbox_id


def sign_takeover_link(secret: bytes, public_url: str, thread_id: str, *, expires_at: float) -> str:
    """Returns a new URL on which a person can take over the thread's browser."""
    token = _signed_token(secret, _TAKEOVER, [thread_id, int(expires_at), secrets.token_hex(8)])
    return f"{public_url.rstrip('/')}/takeover/{token}"


def verify_takeover_link(secret: bytes, token: str, *, now: float | None = None) -> TakeoverLink:
    """Returns the token's content. Raises as `verify_file_link`."""
    thread_id, expires_at, _ = cast(
        tuple[str, int, str], _verified_content(secret, _TAKEOVER, token)
    )
    _check_time(expires_at, now)
    return TakeoverLink(thread_id=thread_id, expires_at=expires_at, key=token.partition(".")[2])


def load_link_secret(folder: Path, given: str = "") -> bytes:
    """Returns the given secret, or the one in the folder; the first call creates that file for its owner only.

    Raises ConfigurationError if the folder cannot be read or written.
    """
    if given:
        return given.encode()
    try:
        return _stored_secret(folder)
    except OSError as error:
        raise ConfigurationError(
            f"The data folder {folder} cannot be used: {error.strerror}."
        ) from error


def _stored_secret(folder: Path) -> bytes:
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
            file.hardlink_to(fresh)  # the first of several processes wins
    finally:
        fresh.unlink(missing_ok=True)
    return file.read_bytes()


def _signed_token(secret: bytes, purpose: bytes, content: list[str | int]) -> str:
    claim = json.dumps(content, separators=(",", ":")).encode()
    return f"{_encode(claim)}.{_encode(_sign(secret, purpose, claim))}"


def _verified_content(secret: bytes, purpose: bytes, token: str) -> object:
    payload, _, signature = token.partition(".")
    try:
        claim = _decode(payload)
    except (binascii.Error, ValueError):
        raise ApiError(404, "not_found", "This link is not one of ours.") from None
    # compared as text: base64 can spell the same bytes in several ways, but a take-over link has only one key
    right = _encode(_sign(secret, purpose, claim))
    if not hmac.compare_digest(signature.encode(errors="replace"), right.encode()):
        raise ApiError(404, "not_found", "This link is not one of ours.")
    return json.loads(claim)


def _check_time(expires_at: int, now: float | None) -> None:
    if expires_at < (time.time() if now is None else now):
        raise ApiError(410, "link_expired", "This link has expired; ask the agent for a new one.")


def _sign(secret: bytes, purpose: bytes, claim: bytes) -> bytes:
    return hmac.digest(secret, purpose + claim, hashlib.sha256)


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


_PORT = b"threadhand port\0"
_SIGNATURE_BYTES = 16
_CLAIM_BYTES = 18
_LABEL = re.compile(r"[a-z2-7]{55}")
"""16 bytes of thread id, 2 of port and 16 of signature in base32; a DNS label has at most 63 characters."""
LOCAL_DOMAIN = "localhost"
"""Browsers resolve every name below it to their own machine (RFC 6761, 6.3)."""


def port_url(
    secret: bytes, thread_id: str, port: int, *, domain: str, public_url: str
) -> str | None:
    """Returns the port's URL, or None if such host names do not lead to this server."""
    try:
        label = sign_label(secret, thread_id, port)
        base_url = urlsplit(public_url)
        local_port = base_url.port
    except ValueError:
        return None
    if domain:
        scheme = (
            "http" if exposed_ports_domain(domain, public_url).endswith(LOCAL_DOMAIN) else "https"
        )
        return f"{scheme}://{label}.{domain}/"
    if not exposed_ports_domain(domain, public_url) or not public_url:
        return None
    return f"{base_url.scheme}://{label}.{LOCAL_DOMAIN}{f':{local_port}' if local_port else ''}/"


def exposed_ports_domain(domain: str, public_url: str) -> str:
    """The domain above the labels of exposed ports; empty if there is none.

    Without a configured domain it is `localhost`, unless `public_url` names another machine."""
    if domain:
        return (urlsplit(f"//{domain}").hostname or "").lower()
    host = urlsplit(public_url).hostname or ""
    return LOCAL_DOMAIN if not public_url or is_loopback(host) else ""


def label_from_host(host_header: str, host: str) -> str:
    """The label in a Host header below the given host; empty if the name is not of that form."""
    try:
        name = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return ""
    label, _, rest = name.rstrip(".").partition(".")
    return label if host and rest == host and _LABEL.fullmatch(label) else ""


def sign_label(secret: bytes, thread_id: str, port: int) -> str:
    """Returns the label for a thread's port. Raises ValueError if `thread_id` is not a UUID."""
    claim = uuid.UUID(thread_id).bytes + port.to_bytes(2, "big")
    signature = hmac.digest(secret, _PORT + claim, hashlib.sha256)[:_SIGNATURE_BYTES]
    return base64.b32encode(claim + signature).rstrip(b"=").decode().lower()


def verify_label(secret: bytes, label: str) -> tuple[str, int]:
    """Returns the label's thread id and port. Raises ApiError 404 if the signature is wrong."""
    try:
        claim = base64.b32decode(label.upper() + "=" * (-len(label) % 8))[:_CLAIM_BYTES]
        thread_id, port = str(uuid.UUID(bytes=claim[:16])), int.from_bytes(claim[16:], "big")
    except ValueError:
        raise ApiError(404, "not_found", "This address is not one of ours.") from None
    if not hmac.compare_digest(sign_label(secret, thread_id, port), label):
        raise ApiError(404, "not_found", "This address is not one of ours.")
    return thread_id, port
