"""Makes names and texts from outside fit for a line, a sentence or a quotation that the program writes."""

import re
import unicodedata
from pathlib import PurePosixPath

NAME_CHARACTERS_MAX = 80
FILE_NAME_BYTES_MAX = 120
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
"""Characters that control a terminal or the writing direction, or that nobody sees. Joiners belong to words and emoji.
"""
_UNNAMEABLE = ("Cc", "Cf", "Cs", "Co", "Cn")
QUOTE_MARKS = (">", "&gt;", "＞")
"""Each line of a quotation begins with one, in chats as well."""
HIDDEN_TARGET = re.compile(r"\[leads to [^\[\]\n]*\]")
"""What `hidden_target` writes."""
_ADDRESS_MARKS = frozenset(".:/@%\\\u3002")
_BRACKETS = str.maketrans("[]`", "()'")


def single_line(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Returns the beginning of the text as one line, without characters that steer how it is shown. A cut text ends
    with an ellipsis."""
    visible = " ".join(_STEERING.sub("", " ".join(text[: characters_max * 4].split())).split())
    return visible if len(visible) <= characters_max else f"{visible[: characters_max - 1].rstrip()}…"


def without_control_characters(text: str) -> str:
    """Returns the text without characters that steer how it is shown. Line breaks and tabs stay."""
    return _STEERING.sub(lambda found: found[0] if found[0] in "\n\t" else "", text)


def escape_markdown(words: str) -> str:
    """Escapes what people wrote themselves, such as names, so that it shows no links, styles, headings or lists."""
    escaped = re.sub(r"([\\`*_~|\[\]<>])", r"\\\1", words)
    return re.sub(r"(?m)^([ \t]{0,9}\d{0,9})([-+#=.)])", r"\1\\\2", escaped)


def shown_name(name: str) -> str:
    """Returns a name from outside for a sentence in Markdown."""
    return escape_markdown(single_line(name))


def inline_code(text: str) -> str:
    """Returns a name, such as that of a file, as inline code, which it cannot end."""
    return f"`{single_line(text, 200).replace('`', chr(39))}`"


def is_quotation(line: str) -> bool:
    """Returns whether a line may belong to a quotation. It may be indented and contain unusual line breaks."""
    return any(part.strip().startswith(QUOTE_MARKS) for part in line.splitlines())


def mentioned_name(name: str) -> str:
    """Returns a name that others chose so that it is no address where somebody mentions it in their own words."""
    spaced = (
        character if _ADDRESS_MARKS.isdisjoint(unicodedata.normalize("NFKC", character)) else f"{character} "
        for character in name
    )
    return " ".join("".join(spaced).split())


def hidden_target(address: str) -> str:
    """Returns where a link leads that shows other words. It names nothing, because its author may not have seen it."""
    return f"[leads to {single_line(address, 2_000).replace('[', '%5B').replace(']', '%5D')}]"


def quote_lines(text: str) -> str:
    """Returns the text as a quotation that it cannot leave: every line has the mark, whatever character ends it."""
    return "\n".join(f"> {line}" for line in text.splitlines())


def safe_file_name(name: str) -> str:
    """Returns a safe file name: without folders, control characters, a leading dot, and the brackets and backquotes
    that would end what the program writes around it; at most FILE_NAME_BYTES_MAX bytes."""
    flat = unicodedata.normalize("NFC", name).replace("\\", "/")
    base = PurePosixPath(flat).name if flat.strip("/") else ""
    if len(base) > 4 * FILE_NAME_BYTES_MAX:
        base = base[: 3 * FILE_NAME_BYTES_MAX] + base[-FILE_NAME_BYTES_MAX:]
    kept = "".join(character for character in base if unicodedata.category(character) not in _UNNAMEABLE)
    cleaned = " ".join(kept.translate(_BRACKETS).split()).strip(" .") or "file"
    while len(cleaned.encode()) > FILE_NAME_BYTES_MAX:
        stem, dot, suffix = cleaned.rpartition(".")
        cleaned = f"{stem[:-1]}{dot}{suffix}" if dot and len(suffix) < 12 and stem else cleaned[:-1]
    return cleaned
