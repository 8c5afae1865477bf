"""The names under which ports of sandboxes are reached: each an origin of its own, `<label>.<domain>`.

The label names thread and port, and is signed, so that nothing has to be kept and none can be guessed.
"""

import base64
import hashlib
import hmac
import re
import uuid
from urllib.parse import urlsplit

from bots.web.auth import is_loopback
from bots.web.errors import Refusal

_PURPOSE = b"threadhand port\0"
_SIGNATURE_BYTES = 16
_CLAIM_BYTES = 18
_LABEL = re.compile(r"[a-z2-7]{55}")
"""Sixteen bytes of the thread's id, two of the port and sixteen of signature, in base32: DNS takes 63 characters."""
LOCAL_DOMAIN = "localhost"
"""Browsers lead every name below it to their own machine (RFC 6761, 6.3)."""


def port_url(
    secret: bytes, thread_id: str, port: int, *, domain: str, public_url: str
) -> str | None:
    """Where the port is reached; None where nothing leads to this server by such names."""
    try:
        label = label_of(secret, thread_id, port)
        around = urlsplit(public_url)
        local_port = around.port
    except ValueError:
        return None
    if domain:
        scheme = "http" if exposed_host(domain, public_url).endswith(LOCAL_DOMAIN) else "https"
        return f"{scheme}://{label}.{domain}/"
    if not exposed_host(domain, public_url) or not public_url:
        return None
    return f"{around.scheme}://{label}.{LOCAL_DOMAIN}{f':{local_port}' if local_port else ''}/"


def exposed_host(domain: str, public_url: str) -> str:
    """The host below which the names are; empty where there are none. Without a domain only this machine's own."""
    if domain:
        return (urlsplit(f"//{domain}").hostname or "").lower()
    host = urlsplit(public_url).hostname or ""
    return LOCAL_DOMAIN if not public_url or is_loopback(host) else ""


def label_in(host_header: str, host: str) -> str:
    """The label of a Host header below the host; empty where it is no such name."""
    try:
        name = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return ""
    label, _, rest = name.rstrip(".").partition(".")
    return label if host and rest == host and _LABEL.fullmatch(label) else ""


def label_of(secret: bytes, thread_id: str, port: int) -> str:
    """Raises ValueError for what is no id of a thread."""
    claim = uuid.UUID(thread_id).bytes + port.to_bytes(2, "big")
    signature = hmac.digest(secret, _PURPOSE + claim, hashlib.sha256)[:_SIGNATURE_BYTES]
    return base64.b32encode(claim + signature).rstrip(b"=").decode().lower()


def opened(secret: bytes, label: str) -> tuple[str, int]:
    """Thread and port that the label names. Raises Refusal 404 for one that is not ours."""
    try:
        claim = base64.b32decode(label.upper() + "=" * (-len(label) % 8))[:_CLAIM_BYTES]
        thread_id, port = str(uuid.UUID(bytes=claim[:16])), int.from_bytes(claim[16:], "big")
    except ValueError:
        raise Refusal(404, "not_found", "This address is not one of ours.") from None
    if not hmac.compare_digest(label_of(secret, thread_id, port), label):
        raise Refusal(404, "not_found", "This address is not one of ours.")
    return thread_id, port
