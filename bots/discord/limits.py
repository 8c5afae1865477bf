"""Discord's limits, and functions that fit text into them."""

from bots.delivery.markdown import truncate
from core.domain.outside_text import single_line

TEXT_MAX = 4000
"""Limit on the total length of all text displays in a message."""
CONTENT_MAX = 2000
"""Limit on `content`, in a message without components V2."""
ANSWER_MAX = 1800
"""Leaves room for the delivery marker and for tables, which grow when they are aligned."""
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


def remove_unsendable(text: str) -> str:
    """Removes control characters and replaces lone surrogates, because Discord or JSON do not accept them."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(c for c in whole if c in "\n\t" or (c >= " " and c != "\x7f"))


def to_single_line(text: str, length_max: int) -> str:
    """Returns the text as one line without characters that change the writing direction, truncated."""
    return truncate(single_line(remove_unsendable(text), 2 * length_max), length_max)
