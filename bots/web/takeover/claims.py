"""Who holds which take-over link: one file per link in the data folder, so that a restart forgets nobody."""

import hashlib
import hmac
import json
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from core.failpoints import Failpoint

CLAIM = Failpoint("web.claim_takeover")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`holder` is the hash of the one browser's cookie. `expires_at` is that of the link, in seconds of the epoch."""

    key: str
    thread_id: str
    expires_at: int
    holder: str
    is_done: bool = False


class Claims:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, key: str, thread_id: str, expires_at: int) -> str | None:
        """The cookie for the first who comes; None for everybody after."""
        cookie = secrets.token_urlsafe(32)
        claim = Claim(key=key, thread_id=thread_id, expires_at=expires_at, holder=_hash(cookie))
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = self._folder / f"{key}.{secrets.token_hex(4)}"
        fresh.touch(mode=0o600)
        fresh.write_text(_written(claim))
        with CLAIM, suppress(FileExistsError):
            (self._folder / key).hardlink_to(fresh)
            fresh.unlink()
            return cookie
        fresh.unlink()
        return None

    def find(self, key: str) -> Claim | None:
        try:
            facts = cast(dict[str, Any], json.loads((self._folder / key).read_text()))
            return Claim(key=key, **facts)
        except (OSError, ValueError, TypeError):
            return None

    def end(self, key: str) -> bool:
        """False where another has ended it already."""
        claim = self.find(key)
        if claim is None or claim.is_done:
            return False
        fresh = self._folder / f"{key}.{secrets.token_hex(4)}"
        fresh.touch(mode=0o600)
        done = Claim(
            key=key,
            thread_id=claim.thread_id,
            expires_at=claim.expires_at,
            holder=claim.holder,
            is_done=True,
        )
        fresh.write_text(_written(done))
        fresh.replace(self._folder / key)
        return True

    def open(self) -> list[Claim]:
        """Those that are neither done nor forgotten. Claims whose links are long gone are removed."""
        found: list[Claim] = []
        for path in list(self._folder.glob("*")) if self._folder.is_dir() else []:
            claim = self.find(path.name)
            if claim is None or claim.expires_at < time.time() - 86_400:
                path.unlink(missing_ok=True)
            elif not claim.is_done:
                found.append(claim)
        return found


def is_holder(claim: Claim, cookie: str) -> bool:
    return hmac.compare_digest(claim.holder, _hash(cookie))


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


def _written(claim: Claim) -> str:
    return json.dumps(
        {
            "thread_id": claim.thread_id,
            "expires_at": claim.expires_at,
            "holder": claim.holder,
            "is_done": claim.is_done,
        }
    )
