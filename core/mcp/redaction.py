"""What a server was given in confidence, taken out of what it says."""

import re

from core.mcp.settings import McpServerConfig

BLOT = "[secret]"
SECRET_CHARACTERS_MIN = 8
"""Shorter values stand in ordinary texts too."""
_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|auth|cookie|session")
_PLACE = re.compile(r"[/.~]|https?://[^@]*$")


def secrets_of(config: McpServerConfig) -> tuple[str, ...]:
    """Values that came in by reference, headers, and variables with a telling name; longest first.

    Places (paths, addresses without a password) are none: they stand in good answers.
    """
    named = [text for name, text in config.env.items() if _SECRET_NAME.search(name)]
    headers = [text for name, text in config.headers.items() if not name.lower().startswith("acc")]
    words = [text.split(" ", 1)[1] for text in headers if " " in text]
    found = {
        text
        for text in (*config.secrets, *named, *headers, *words)
        if len(text) >= SECRET_CHARACTERS_MIN and not _PLACE.match(text)
    }
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def blotted(text: str, secrets: tuple[str, ...]) -> str:
    """The text without the secrets."""
    for secret in secrets:
        text = text.replace(secret, BLOT)
    return text
