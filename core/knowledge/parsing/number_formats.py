"""Shows the numbers of spreadsheet cells as their formats do."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne

BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 14: "yyyy-mm-dd", 15: "d-mmm-yy", 16: "d-mmm",
    17: "mmm-yy", 18: "h:mm", 19: "h:mm:ss", 20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0;(#,##0)",
    38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 45: "mm:ss", 46: "[h]:mm:ss",
    47: "mm:ss", **dict.fromkeys((*range(27, 37), *range(50, 59)), "yyyy-mm-dd h:mm"),
}  # fmt: skip
"""The formats that a file refers to only by number. Numbers 27 to 58 are dates or times of East Asian editions, which
differ from each other."""
_TOKEN = re.compile(
    r'"([^"]*)"?|\\(.)|[_*].|\[\$([^\]-]*)[^\]]*\]?|\[([hms]{1,9})\]|\[([<>=]{1,2}-?[0-9]{1,15}(?:\.[0-9]{1,15})?)\]'
    r"|\[[^\]]*\]?|(am/pm|a/p|general|[ymdhs]+|.)",
    re.IGNORECASE,
)
_ELAPSED, _CONDITION, _CODE = 4, 5, 6
"""The kinds of tokens that are not shown as text. They are the names of the groups in the pattern."""
_COMPARISONS = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "<>": ne}
_CODE_CHARACTERS_MAX = 250
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30, tzinfo=UTC), datetime(1904, 1, 1, tzinfo=UTC)
_LOSS_MAX = 0.005
_PLAIN_MAX = 1e21
_HALF_UP = 1 + 1e-15  # so that a half is rounded up, as spreadsheets do


def format_plain_number(value: float) -> str:
    """Returns a number in full: no exponent unless it is huge or tiny, and no noise of the last binary digits."""
    text = f"{value:.15g}"
    return f"{Decimal(text):f}" if "e" in text and 1e-10 < abs(value) < _PLAIN_MAX else text


def format_stored_number(stored: str, code: str = "", *, is_1904: bool = False) -> str:
    """Formats a stored number as its number format demands. Any other text is returned unchanged."""
    try:
        return format_number(float(stored), code, is_1904=is_1904)
    except ValueError:
        return stored


_Show = Callable[[float, bool, bool], str]
"""Formats a number by a section of a format. The other parameters say whether the section is the first, and whether
days count from 1904."""


def format_number(value: float, code: str, *, is_1904: bool = False) -> str:
    """Formats the number. Dates become ISO dates. If the format would round away more than half a percent of the value,
    more decimals are shown. If the format shows nothing, the number is marked as hidden."""
    if not code or abs(value) >= _PLAIN_MAX:
        return format_plain_number(value)
    (condition, show), *others = _read_format(code[:_CODE_CHARACTERS_MAX])
    is_first = not others or _meets(value, condition or (">0" if others[1:] else ">=0"))
    if not is_first:
        is_second = not others[1:] or _meets(value, others[0][0] or "<0")
        show = others[0 if is_second else 1][1]
    try:
        return show(value, is_first, is_1904)
    except (OverflowError, ValueError):  # not a date
        return format_plain_number(value)


def _meets(value: float, condition: str) -> bool:
    sign = condition.rstrip("-.0123456789")
    return sign not in _COMPARISONS or _COMPARISONS[sign](value, float(condition.removeprefix(sign)))


@lru_cache(1_000)
def _read_format(code: str) -> list[tuple[str, _Show]]:
    """Returns up to three sections of a format, each with the condition that its numbers meet, such as ">=1000"."""
    sections: list[list[tuple[int, str]]] = [[]]
    for match in _TOKEN.finditer(code):
        if match[0] == ";":
            sections.append([])
        elif match.lastindex:
            sections[-1].append((match.lastindex, match[match.lastindex]))
    return [
        ("".join(text for kind, text in tokens if kind == _CONDITION), _read_section(tokens)) for tokens in sections
    ]


def _read_section(tokens: list[tuple[int, str]]) -> _Show:
    marks = "".join(text for kind, text in tokens if kind == _CODE)
    if re.search("[eE][+-]|[0#?] */", marks):
        return lambda value, is_first, is_1904: format_plain_number(value)
    elapsed = "".join(text[0].lower() for kind, text in tokens if kind == _ELAPSED)[:1]
    letters = (text.lower() for kind, text in tokens if kind == _ELAPSED or (kind == _CODE and text[0] in "yYmMdDhHsS"))
    if units := "".join(letters):
        return lambda value, is_first, is_1904: _format_date(value, units, elapsed, is_1904)
    point = next((at for at, token in enumerate(tokens) if token == (_CODE, ".")), len(tokens))
    places = [at for at, (kind, text) in enumerate(tokens[:point]) if kind == _CODE and text in "0#?"]
    general = [at for at, (kind, text) in enumerate(tokens) if kind == _CODE and text.lower() in ("general", "@")]
    texts = [
        "" if kind == _CONDITION or at in general or (kind == _CODE and text in "0#?,.") else text
        for at, (kind, text) in enumerate(tokens)
    ]
    fraction, scale = re.search(r"\.([0#?]*)", marks), re.search("[0#?](,+)(?![0#?,])", marks)
    factor = 100 ** marks.count("%") / 1000 ** (len(scale[1]) if scale else 0)
    zeros = sum(tokens[at][1] == "0" for at in places)
    is_grouped, is_general = re.search("[0#?],[0#?]", marks) is not None, bool(general) and not places
    places = places or ([point] if point < len(tokens) else general[:1])

    def fill_in(value: float, is_first: bool, is_1904: bool) -> str:
        number, decimals, shown = abs(value) * factor, fraction[1] if fraction else "", [*texts]
        if abs(round(number, len(decimals)) - number) > number * _LOSS_MAX:
            decimals = "0" * len(f"{Decimal(f'{number:.6g}'):f}".partition(".")[2])
        before, _, after = f"{number * _HALF_UP:.{len(decimals)}f}".partition(".")
        while after.endswith("0") and decimals[len(after) - 1] == "#":
            after = after[:-1]
        before = before.lstrip("0").zfill(zeros)
        if is_general:
            before, after = format_plain_number(number), ""
        elif is_grouped and before:
            before = f"{int(before):,}"
        elif places and any(shown[places[0] : places[-1]]):  # a telephone number, for instance
            for at in reversed(places[1:]):
                shown[at], before = before[-1:], before[:-1]
        if places:
            shown[places[0]] = before
            shown[places[-1]] += f".{after}" if after else ""
        text = "".join(shown).strip()
        has_sign = not is_first and any(sign in text for sign in "-(−")
        if not text:
            return f"[hidden: {format_plain_number(value)}]" if value else ""
        return f"-{text}" if value < 0 and not has_sign else text

    return fill_in


def _format_date(value: float, units: str, elapsed: str, is_1904: bool) -> str:
    seconds = round(value * 86_400)
    if elapsed:
        count = abs(seconds)
        parts = {"h": [count // 3600, count // 60 % 60, count % 60], "m": [count // 60, count % 60], "s": [count]}
        shown = parts[elapsed][: None if "s" in units else -1]
        return "-" * (seconds < 0) + ":".join(f"{part:02}" if at else str(part) for at, part in enumerate(shown))
    # spreadsheets count 29 February 1900, a day that never existed
    days = timedelta(days=1 if 0 < value < 60 and not is_1904 else 0)
    moment = (_EPOCH_1904 if is_1904 else _EPOCH) + timedelta(seconds=seconds) + days
    has_time = "h" in units or "s" in units
    if has_time and (not set(units) & set("yd") or 0 <= value < 1):
        return moment.strftime("%H:%M:%S" if "s" in units or moment.second else "%H:%M")
    if not has_time or moment.time() == time.min:
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
