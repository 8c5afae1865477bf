"""Discord's limits, and functions that fit text into them."""

TEXT_MAX = 4000
"""Limit on the total length of all text displays in a message."""
CONTENT_MAX = 2000
"""Limit on `content`, in a message without components V2."""
BUTTON_LABEL_MAX = 80
BUTTONS_PER_ROW_MAX = 5
SELECT_OPTIONS_MAX = 25
SELECT_OPTION_MAX = 100
PLACEHOLDER_MAX = 150
MODAL_INPUT_MAX = 4000
THREAD_NAME_MAX = 100
FILE_NAME_MAX = 200
FILE_BYTES_DEFAULT = 10 * 1024 * 1024
"""Upload limit in direct messages and in guilds without boosts."""

FILE_BYTES_MAX = 100 * 1024 * 1024
"""Upload limit in guilds with the highest boost tier."""


def utf16_length(text: str) -> int:
    """Returns the UTF-16 length, which is safe whether Discord counts UTF-16 units or characters."""
    return len(text) + sum(character > "\uffff" for character in text)


def remove_unsendable(text: str) -> str:
    """Removes control characters and replaces lone surrogates, which Discord or JSON refuse."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(c for c in whole if c in "\n\t" or (c >= " " and c != "\x7f"))


def truncate(text: str, length_max: int) -> str:
    """Truncates the text to the length, with an ellipsis."""
    if utf16_length(text) <= length_max:
        return text
    kept = text[: max(0, length_max - 1)]
    while kept and utf16_length(kept) > length_max - 1:
        kept = kept[: len(kept) - max(1, (utf16_length(kept) - length_max + 1) // 2)]
    return f"{kept}…"


def to_single_line(text: str, length_max: int) -> str:
    """Collapses white space to single spaces, and truncates the text."""
    return truncate(" ".join(remove_unsendable(text).split()), length_max)
