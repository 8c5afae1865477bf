"""Who a step is for: the `[name]` in front of its words."""

import re
from collections.abc import Iterable

_NAMED = re.compile(r"^\s*\[([^\[\]\n]{1,80})\]\s*")


def name_in(text: str) -> str | None:
    """The name in front of a step, as it was written; None where there is none."""
    found = _NAMED.match(text)
    return found.group(1).strip() if found else None


def words_of(text: str) -> str:
    """The step without the name."""
    return text[found.end() :] if (found := _NAMED.match(text)) else text


def member_named(name: str | None, team: Iterable[str]) -> str | None:
    """The one of the team that is meant, whatever the case and the signs between the words; None: nobody."""
    if name is None:
        return None
    return next((one for one in team if _plain(one) == _plain(name)), None)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name.casefold()).strip("-")
