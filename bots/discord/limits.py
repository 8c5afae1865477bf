"""What Discord allows in one message, and how texts are made to fit."""

TEXT_MAX = 4000
"""Characters of all text displays of one message together."""
CONTENT_MAX = 2000
"""Characters of an ordinary message."""
BUTTON_LABEL_MAX = 80
BUTTONS_PER_ROW_MAX = 5
SELECT_OPTIONS_MAX = 25
SELECT_OPTION_MAX = 100
PLACEHOLDER_MAX = 150
MODAL_INPUT_MAX = 4000
THREAD_NAME_MAX = 100
FILE_NAME_MAX = 200
FILE_BYTES_DEFAULT = 10 * 1024 * 1024
"""Upload limit of a guild without boosts, and of direct messages."""

FILE_BYTES_MAX = 100 * 1024 * 1024
"""Upload limit of a guild with the most boosts."""


def utf16_length(text: str) -> int:
    """UTF-16 units, which is never less than characters: whichever Discord counts, the text fits."""
    return len(text) + sum(character > "\uffff" for character in text)


def remove_unsendable(text: str) -> str:
    """The text without lone surrogates and control characters, which JSON or Discord refuse."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(c for c in whole if c in "\n\t" or (c >= " " and c != "\x7f"))


def truncate(text: str, length_max: int) -> str:
    """The start of the text, with an ellipsis where something was cut off."""
    if utf16_length(text) <= length_max:
        return text
    kept = text[: max(0, length_max - 1)]
    while kept and utf16_length(kept) > length_max - 1:
        kept = kept[: len(kept) - max(1, (utf16_length(kept) - length_max + 1) // 2)]
    return f"{kept}…"


def to_single_line(text: str, length_max: int) -> str:
    """The text with all white space as single spaces, clipped."""
    return truncate(" ".join(remove_unsendable(text).split()), length_max)
