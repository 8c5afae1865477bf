"""Finds the secrets in the settings of an MCP server, and redacts them in texts."""

import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from core.mcp.settings import McpServerConfig

REDACTED = "[secret]"
REDACTED_CHARACTERS_MIN = 8
"""Shorter values are not redacted, because they also occur in ordinary texts."""
_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|auth|cookie|session")
_WEB_ADDRESS = re.compile(r"https?://[^@]*$")
_PARAMETER = re.compile(r"[?&]([^=&#?]+)=([^&#\s]+)")
_PASSWORD = re.compile(r"://[^/@:\s]*:([^/@\s]+)@")


def secret_values(config: McpServerConfig) -> tuple[str, ...]:
    """Returns the values to redact, longest first: values that replaced references, headers, variables with names like
    those of secrets, and passwords and such parameters in addresses.

    Paths and addresses without a password are not redacted, because useful answers contain them."""
    texts = "\n".join((config.url, *config.args, *config.env.values(), *config.secrets))
    inside = [text for name, text in _PARAMETER.findall(texts) if _SECRET_NAME.search(name)]
    inside += _PASSWORD.findall(texts)
    named = [text for name, text in config.env.items() if _SECRET_NAME.search(name)]
    if config.oauth is not None:
        named += [config.oauth.client_secret, config.oauth.private_key]
    headers = [text for name, text in config.headers.items() if not name.lower().startswith("accept")]
    words = [text.split(" ", 1)[1] for text in headers if " " in text]
    found = {
        text
        for text in (*config.secrets, *named, *headers, *words, *inside, *map(unquote, inside))
        if len(text) >= REDACTED_CHARACTERS_MIN and not _is_place(text)
    }
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def _is_place(text: str) -> bool:
    """Whether the value is an address, or a path on this machine. A secret may begin with a slash, too."""
    if not text.startswith(("/", "./", "../", "~/")):
        return _WEB_ADDRESS.match(text) is not None
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(text).expanduser()
        return path.exists() or (path.parent != Path("/") and path.parent.exists())
    return False


def redact(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text
