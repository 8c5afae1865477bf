"""Extracts the places that a text or a call names, as values: hosts, e-mail addresses, and words such as channel names.

Values are compared as a whole. `evil-example.com` does not contain `example.com`, and `bobby` does not contain
`bob`."""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import cast
from urllib.parse import unquote

from pydantic import JsonValue

from core.domain.json import JsonObject

NAMES_CHARACTERS_MAX = 10_000
"""How many characters of a message are searched for names. A longer text is a document that a user has pasted."""
PHRASE_WORDS_MAX = 4
"""Names with more words than this, such as long titles, are not searched for in what users wrote."""
VALUE_CHARACTERS_MAX = 320
HOST = "host:"
"""The prefix of a host's value."""
SHORT_CHARACTERS_MAX = 80
"""An argument that is longer than this, or has several lines, counts as free text."""
_HOST_CHARACTERS_MAX = 253
_PIECE = re.compile(r"(?:(?<=[@/])\[[\w.]*:[\w:.%]*\]|[^\s<>()\[\]{}\"'`|,;\\“”„«»‘’])+")
"""Matches text without spaces, brackets and quotes. Brackets are allowed only in an IPv6 address, such as
`//[2001:db8::1]`."""
_WEB_START = re.compile(r"(?<![a-zA-Z0-9])(?i:(https?|wss?|ftp)):[\\/]*(?=[^\s\\/])")
"""Browsers and libraries treat `https:host`, `https:/host` and `https:\\host` like `https://host`."""
_BETWEEN_WORDS = re.compile(r"[\s<>()\[\]{}\"'`|,;\\“”„«»‘’/:=!?*~…]+")
_MISSING_SPACE = re.compile(r"(?<=[a-z0-9])\.(?=[A-Z][a-z])")
"""Matches a sentence that ends with a name, directly followed by the next sentence without a space."""
_EDGES = ".,;:!?*_~-"
_WORD_EDGES = f"{_EDGES}#@"
_AUTHORITY_END = re.compile(r"[/?#\\]")
_MAIL_START = re.compile(r"[:/]")
_IDEOGRAPHIC_DOT = "\u3002"
_SIGN_IN_WORD = re.compile("(?<!\\s)[.:/@\uff0e\u3002\uff1a\uff0f\uff20]\\S")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_PORT = re.compile(r":[0-9]*$")
_FILE_WORDS = (
    "bat c cfg conf cpp css csv dat db doc docx gif go gz htm html ico ini ipynb java jpeg jpg js json jsx key lock log"
    " md mjs mp3 mp4 odt pdf php pl png ppt pptx py rb rs sh sql svg tar toml ts tsv tsx txt wav webp xls xlsx xml yaml"
    " yml zip"
)
_FILE_ENDINGS = frozenset(_FILE_WORDS.split())
"""A text that looks like a host but ends like a file name is a file name, unless it is written as an address."""
_PLACE_WORDS = (
    "account accounts address addresses assignee assignees attendee attendees bcc beneficiary bucket callback cc"
    " channel channels chat conversation destination destinations domain email emails endpoint guest guests host"
    " hostname iban invitee invitees member members owner participant participants payee phone project receiver"
    " receivers recipient recipients repo repository reviewer reviewers room site space subscriber subscribers to uri"
    " url urls user username users webhook webhooks workspace"
)
_PLACES = frozenset(_PLACE_WORDS.split())
"""Words in argument names that indicate whom or what a call reaches."""
_CONTENT_WORDS = (
    "body color colour content count date description format html kind label limit markdown message note notes page"
    " password query role size sort status subject summary text time title topic type"
)
_CONTENTS = frozenset(_CONTENT_WORDS.split())
"""Last words of argument names whose value is content and not a place, such as `email_body`."""
_NAME_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")


def parse_names(text: str) -> frozenset[str]:
    """Returns the values that a text names: its hosts and e-mail addresses, its words, and their phrases."""
    text = _MISSING_SPACE.sub(". ", text[:NAMES_CHARACTERS_MAX])
    words = [*filter(None, map(_word, _BETWEEN_WORDS.split(text)))]
    phrases = (
        " ".join(words[start : start + length])
        for length in range(1, PHRASE_WORDS_MAX + 1)
        for start in range(len(words) - length + 1)
    )
    return frozenset(map(normalize_target, find_addresses(text))) | {f"word:{phrase}" for phrase in phrases}


def normalize_target(target: str) -> str:
    """Returns the value by which a target is compared: `host:`, `mail:` or `word:` with what it names, or `unread:`
    with the whole address if that cannot be parsed. For a target that names nothing, returns an empty word, which
    nobody can name."""
    if value := _address_value(target.strip().strip("<>")):
        return value
    words = filter(None, map(_word, _BETWEEN_WORDS.split(target))) if len(target) <= VALUE_CHARACTERS_MAX else ()
    return f"word:{' '.join(words)}"


def find_addresses(text: str) -> list[str]:
    """Returns the addresses of hosts and the e-mail addresses in a text, each value once, and also everything that
    begins like an address but cannot be parsed. They are returned as written, except that `https:host` gets its
    slashes."""
    values: dict[str, str] = {}
    for piece in _PIECE.findall(_WEB_START.sub(r"\1://", text)):
        before, slashes, _ = piece.partition("//")
        inner = (f"https://{rest}" for rest in piece.split("://")[2 if before.endswith(":") else 1 :])
        parts = (piece, before, *inner) if slashes else (piece,)
        for address in (part.rstrip(_EDGES).lstrip(_WORD_EDGES) for part in parts):
            if value := _address_value(address):
                values.setdefault(value, address)
    return list(values.values())


def may_hold_address(text: str) -> bool:
    """Returns whether the text may contain an address: one of `. : / @` stands directly before a character and not
    after white space. Most short answers contain none, so the full search can be skipped."""
    return _SIGN_IN_WORD.search(text) is not None


def normalize_address(address: str) -> str:
    """Returns an address without the parts that make no difference to where it leads or to what the page there learns.
    The part after `#` is kept, because the page's scripts can read it."""
    return address.strip().rstrip("/")


def is_local(target: str) -> bool:
    """Returns whether the address leads to a program or a file inside the sandbox."""
    if target.startswith(("/", "file:", "about:")):
        return not target.startswith(("//", "/\\"))
    host = _host(_AUTHORITY_END.split(target.partition("://")[2] or target, maxsplit=1)[0])
    return host in ("localhost", "127.0.0.1", "::1")


def find_targets(arguments: JsonObject) -> tuple[str, ...]:
    """Returns whom and what the arguments of a call reach, each value once: every address in them, and the recipients,
    channels and accounts in arguments whose name says so."""
    values: dict[str, str] = {}
    pending: list[tuple[str, JsonValue]] = list(reversed(arguments.items()))
    while pending:
        name, value = pending.pop()
        match value:
            case dict():
                pending += [*reversed(value.items()), *(("", key) for key in value)]
            case list():
                pending += [(name, item) for item in reversed(value)]
            case str() | int() if not isinstance(value, bool) and value != "":
                text = str(value)
                words = [word.lower() for word in _NAME_WORD.findall(name)]
                is_place = not _PLACES.isdisjoint(words) and words[-1] not in _CONTENTS
                given = [text] if is_place else []
                for target in (*given, *find_addresses(text)):
                    values.setdefault(normalize_target(target), target)
            case _:
                pass
    return tuple(values.values())


def find_argument_addresses(arguments: JsonObject) -> tuple[str, ...]:
    """Returns every address in the arguments of a call, each value once."""
    texts = (text for value in arguments.values() for text in _texts(value, with_keys=True))
    return tuple(find_addresses("\n".join(texts)))


def find_short_values(arguments: JsonObject) -> tuple[str, ...]:
    """Returns the short texts and the numbers in the arguments of a call, each value once."""
    texts = (text for text in _texts(arguments) if 0 < len(text) <= SHORT_CHARACTERS_MAX and "\n" not in text)
    return tuple({normalize_target(text): text for text in texts}.values())


def _texts(value: JsonValue, *, with_keys: bool = False) -> Iterator[str]:
    pending = [value]
    while pending:
        match pending.pop():
            case str() | int() | float() as scalar if not isinstance(scalar, bool):
                yield str(scalar)
            case dict() as fields:
                pending += [*reversed(cast(JsonObject, fields).values()), *(fields if with_keys else ())]
            case list() as items:
                pending += reversed(cast(list[JsonValue], items))
            case _:
                pass


def _word(piece: str) -> str:
    return unicodedata.normalize("NFC", piece.strip(_WORD_EDGES)).lower()


def _address_value(text: str) -> str:
    """Returns `host:` or `mail:` with the value of an address, or an empty text if the text is not an address. For text
    that begins like an address but cannot be parsed, returns `unread:` with the whole text, because other programs
    might find a host in it."""
    text = _WEB_START.sub(r"\1://", unicodedata.normalize("NFKC", text).replace(_IDEOGRAPHIC_DOT, "."))
    before, slashes, place = text.partition("//")
    local, is_mail, is_url = "", "", before.endswith(":")
    is_bare = not slashes or (before[-1:].isalnum() and not is_url)
    if is_bare:
        local, is_mail, place = unquote(text).rpartition("@")
    authority = _AUTHORITY_END.split(place, maxsplit=1)[0].rpartition("@")[2]
    host = _host(authority)
    user = (local if "@" in local else _MAIL_START.split(local)[-1]).lower()
    is_address = (
        is_url
        or "." in f"{host}{authority.strip('.')}"
        or authority.startswith("[")
        or (not is_bare and host.isdecimal())
    )
    if not host or not is_address or (is_mail and not user):
        is_unread = not host and is_address and authority and (not is_bare or (is_mail and user))
        return f"unread:{text.lower()}" if is_unread else ""
    if is_mail:
        return f"mail:{user}@{host}"
    return f"{HOST}{host}" if not is_bare or _looks_like_host(host) else ""


def _host(authority: str) -> str:
    """Returns the host of `host:port` in its normal form for comparisons, or an empty text."""
    if len(authority) > _HOST_CHARACTERS_MAX + 8:
        return ""
    host = _PORT.sub("", unicodedata.normalize("NFKC", unquote(authority)).replace(_IDEOGRAPHIC_DOT, "."))
    if host.startswith("["):
        host = host[1:].removesuffix("]")
    else:
        host = host.lower().strip(".")
        if not _HOST.fullmatch(host):
            return ""
        if not host.isascii():  # programs write it in ASCII letters
            with suppress(UnicodeError):
                host = host.encode("idna").decode()
    try:
        return str(ip_address(host))
    except ValueError:
        return "" if ":" in host else host.removeprefix("www.")


def _looks_like_host(host: str) -> bool:
    """Returns whether a text without a scheme is a host: it has a dot, and its ending is that of a host."""
    _, dot, ending = host.rpartition(".")
    is_name = ending.isalpha() or ending.startswith("xn--")
    return bool(dot) and (
        (is_name and len(ending) > 1 and ending not in _FILE_ENDINGS)
        or (all(part.isdecimal() for part in host.split(".")) and host.count(".") == 3)
    )
