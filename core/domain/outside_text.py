"""Makes names and texts from outside safe to include in a line, a sentence or a quotation that the program writes."""

import re
import unicodedata
from pathlib import PurePosixPath

NAME_CHARACTERS_MAX = 80
FILE_NAME_BYTES_MAX = 120
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
"""Characters that control a terminal or the writing direction, and invisible ones. Joiners are allowed, because words
and emoji need them."""
_UNNAMEABLE = ("Cc", "Cf", "Cs", "Co", "Cn")
QUOTE_MARKS = (">", "&gt;", "＞")
"""The marks that begin each line of a quotation, in chats as well."""
HIDDEN_TARGET = re.compile(r"\[leads to [^\[\]\n]*\]")
"""Matches the output of `show_hidden_target`."""
_ADDRESS_MARKS = frozenset(".:/@%\\\u3002")
_BRACKETS = str.maketrans("[]`", "()'")


def single_line(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Returns the beginning of the text as one line, without control characters. A truncated text ends with an
    ellipsis."""
    visible = " ".join(_STEERING.sub("", " ".join(text[: characters_max * 4].split())).split())
    return visible if len(visible) <= characters_max else f"{visible[: characters_max - 1].rstrip()}…"


def utf16_length(text: str) -> int:
    """Returns the length in UTF-16 units, which is how platforms count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def without_control_characters(text: str) -> str:
    """Returns the text without control characters, except line breaks and tabs."""
    return _STEERING.sub(lambda found: found[0] if found[0] in "\n\t" else "", text)


def escape_markdown(words: str) -> str:
    """Escapes text that users wrote about themselves, such as names, so that it contains no links, styles, headings or
    lists."""
    escaped = re.sub(r"([\\`*_~|\[\]<>])", r"\\\1", words)
    return re.sub(r"(?m)^([ \t]{0,9}\d{0,9})([-+#=.)])", r"\1\\\2", escaped)


def escape_name(name: str) -> str:
    """Returns a name from outside, made safe for a sentence in Markdown."""
    return escape_markdown(single_line(name))


def inline_code(text: str) -> str:
    """Returns a name, such as a file name, as inline code. The name cannot end the code."""
    return f"`{single_line(text, 200).replace('`', chr(39))}`"


def is_quotation(line: str) -> bool:
    """Returns whether a line may be part of a quotation. It may be indented and may contain unusual line breaks."""
    return any(part.strip().startswith(QUOTE_MARKS) for part in line.splitlines())


def separate_address_marks(name: str) -> str:
    """Returns a name that others chose, changed so that it is not read as an address in the words of a user who
    mentions it."""
    spaced = (
        character if _ADDRESS_MARKS.isdisjoint(unicodedata.normalize("NFKC", character)) else f"{character} "
        for character in name
    )
    return " ".join("".join(spaced).split())


def show_hidden_target(address: str) -> str:
    """Returns where a link leads that shows other words. The result does not count as named by the author, who may not
    have seen it."""
    return f"[leads to {single_line(address, 2_000).replace('[', '%5B').replace(']', '%5D')}]"


def quote_lines(text: str) -> str:
    """Returns the text as a quotation. Every line begins with the mark, whichever character ends the line, so the text
    cannot leave the quotation."""
    return "\n".join(f"> {line}" for line in text.splitlines())


def safe_file_name(name: str) -> str:
    """Returns a safe file name, at most FILE_NAME_BYTES_MAX bytes long: without folders, control characters, a leading
    dot, and the brackets and backquotes that would end the program's own markup around it."""
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
