"""Signed links to one file of a sandbox, which work without a token until they expire."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

from bots.web.refusals import Refusal

_PURPOSE = b"threadhand file link\0"


def sign_link(
    secret: bytes, public_url: str, sandbox_id: str, path: str, *, expires_at: float
) -> str:
    """A URL under `public_url` that downloads the file until `expires_at` (seconds since the epoch)."""
    claim = json.dumps([sandbox_id, path, int(expires_at)], separators=(",", ":")).encode()
    return f"{public_url.rstrip('/')}/files/{_encode(claim)}.{_encode(_sign(secret, claim))}"


def open_link(secret: bytes, token: str, *, now: float | None = None) -> tuple[str, str]:
    """Sandbox id and path of a token. Raises Refusal: 404 for a forged or broken one, 410 for an expired one."""
    payload, _, signature = token.partition(".")
    try:
        claim, given = _decode(payload), _decode(signature)
    except (binascii.Error, ValueError):
        raise Refusal(404, "not_found", "This link is not one of ours.") from None
    if not hmac.compare_digest(given, _sign(secret, claim)):
        raise Refusal(404, "not_found", "This link is not one of ours.")
    sandbox_id, path, expires_at = cast(tuple[str, str, int], json.loads(claim))
    if expires_at < (time.time() if now is None else now):
        raise Refusal(
            410, "link_expired", "This link has expired; ask the agent for the file again."
        )
    return sandbox_id, path


def link_secret(folder: Path) -> bytes:
    """The secret kept in the folder, made at the first call and readable by the owner alone."""
    file = folder / "link.secret"
    with suppress(FileNotFoundError):
        kept = file.read_bytes()
        if kept:
            return kept
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"link.secret.{secrets.token_hex(4)}"
    fresh.touch(mode=0o600)
    fresh.write_bytes(secrets.token_bytes(32))
    with suppress(FileExistsError):
        file.hardlink_to(fresh)  # the first of several processes wins
    fresh.unlink()
    return file.read_bytes()


def _sign(secret: bytes, claim: bytes) -> bytes:
    return hmac.digest(secret, _PURPOSE + claim, hashlib.sha256)


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
