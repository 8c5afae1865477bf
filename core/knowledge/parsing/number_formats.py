"""Shows the numbers of spreadsheet cells as their formats do."""

import re
from datetime import UTC, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache

_BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 14: "yyyy-mm-dd", 15: "d-mmm-yy", 16: "d-mmm",
    17: "mmm-yy", 18: "h:mm", 19: "h:mm:ss", 20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0;(#,##0)",
    38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 45: "mm:ss", 46: "[h]:mm:ss",
    47: "mm:ss",
}  # fmt: skip
_TOKEN = re.compile(
    r'"([^"]*)"?|\\(.)|[_*].|\[\$([^\]-]*)[^\]]*\]|\[([hms]+)\]|\[[^\]]*\]|(am/pm|a/p|[ymdhs]+|.)', re.IGNORECASE
)
_CODE_CHARACTERS_MAX = 250
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30, tzinfo=UTC), datetime(1904, 1, 1, tzinfo=UTC)
_LOSS_MAX = 0.001
_PLAIN_MAX = 1e21

_Section = tuple[list[tuple[int, str]], str, str]


def built_in_format(number: int) -> str:
    """Returns the format that a file names by number only. Empty: a general number."""
    return _BUILT_IN.get(number, "")


def plain_number(value: float) -> str:
    """Returns a number in full: no exponent unless it is huge or tiny, and no noise of the last binary digits."""
    text = f"{value:.15g}"
    return f"{Decimal(text):f}" if "e" in text and 1e-10 < abs(value) < _PLAIN_MAX else text


def format_number(value: float, code: str, *, is_1904: bool = False) -> str:
    """Returns the number as its format shows it. Dates are ISO dates.

    If the format rounds away more than a thousandth of the value, or shows nothing, the number itself is part of it."""
    sections = _read_sections(code[:_CODE_CHARACTERS_MAX])
    is_signed = value < 0 and len(sections) > 1
    tokens, units, marks = sections[1 if is_signed else 2 if value == 0 and len(sections) > 2 else 0]
    try:
        if units:
            return _format_date(value, units, [text.lower() for kind, text in tokens if kind == 4], is_1904)
    except (OverflowError, ValueError):
        return plain_number(value)
    has_places = re.search("[0#?]", marks) is not None
    if (
        re.search("[eE][+-]|[0#?] */", marks)
        or (not has_places and (not code or re.search("(?i)general|@", marks)))
        or abs(value) >= _PLAIN_MAX
    ):
        return plain_number(value)
    shown = _fill_in(abs(value), tokens, marks)
    if not shown:
        return f"[hidden: {plain_number(value)}]" if value else ""
    return f"-{shown}" if value < 0 and not (is_signed and re.search("[-(−]", shown)) else shown


@lru_cache(1_000)
def _read_sections(code: str) -> list[_Section]:
    """Returns the tokens of each section of a format, the units of a date among them, and the text of the others."""
    sections: list[list[tuple[int, str]]] = [[]]
    for match in _TOKEN.finditer(code):
        if match[0] == ";":
            sections.append([])
        elif match.lastindex:
            sections[-1].append((match.lastindex, match[match.lastindex]))
    return [
        (
            tokens,
            "".join(text.lower() for kind, text in tokens if kind == 4 or (kind == 5 and text[0] in "yYmMdDhHsS")),
            "".join(text for kind, text in tokens if kind == 5),
        )
        for tokens in sections
    ]


def _format_date(value: float, units: str, elapsed: list[str], is_1904: bool) -> str:
    seconds = round(value * 86_400)
    if elapsed:
        sign, seconds = "-" if seconds < 0 else "", abs(seconds)
        first, parts = elapsed[0][0], [seconds // 3600, seconds // 60 % 60, seconds % 60]
        if first != "h":
            parts = [seconds // 60, seconds % 60] if first == "m" else [seconds]
        if "s" not in units:
            parts = parts[: 2 if first == "h" else 1]
        return sign + ":".join(f"{part:02}" if at else str(part) for at, part in enumerate(parts))
    # the format counts a 29 February 1900 that never was
    days = timedelta(days=1 if 0 < value < 60 and not is_1904 else 0)
    moment = (_EPOCH_1904 if is_1904 else _EPOCH) + timedelta(seconds=seconds) + days
    has_time = "h" in units or "s" in units
    if has_time and (not set(units) & set("yd") or 0 <= value < 1):
        return moment.strftime("%H:%M:%S" if "s" in units or moment.second else "%H:%M")
    if not has_time or moment.time() == time.min:
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")


def _fill_in(value: float, tokens: list[tuple[int, str]], marks: str) -> str:
    """Returns the text of the tokens with the digits of the value in their places."""
    fraction = re.search(r"\.([0#?]*)", marks)
    pattern = fraction[1] if fraction else ""
    scale = re.search(r"[0#?](,+)(?![0#?,])", marks)
    value = value * 100 ** marks.count("%") / 1000 ** (len(scale[1]) if scale else 0)
    if abs(round(value, len(pattern)) - value) > value * _LOSS_MAX:
        pattern = "0" * len(f"{Decimal(f'{value:.6g}'):f}".partition(".")[2])
    with localcontext(prec=400, rounding=ROUND_HALF_UP):
        before, _, after = f"{Decimal(f'{value:.15g}'):.{len(pattern)}f}".partition(".")
    while after.endswith("0") and pattern[len(after) - 1] == "#":
        after = after[:-1]

    point = next((at for at, token in enumerate(tokens) if token == (5, ".")), len(tokens))
    places = [at for at, (kind, text) in enumerate(tokens[:point]) if kind == 5 and text in "0#?"]
    shown = ["" if kind == 5 and text in "0#?,." else text for kind, text in tokens]
    before = before.lstrip("0").zfill(sum(tokens[at][1] == "0" for at in places))
    if re.search("[0#?],[0#?]", marks) and before:
        before = f"{int(before):,}"
    elif places and any(shown[places[0] : places[-1]]):  # a telephone number, for instance
        for at in reversed(places[1:]):
            shown[at], before = before[-1:], before[:-1]
    if places:
        shown[places[0]] = before
        shown[places[-1]] += f".{after}" if after else ""
    elif point < len(tokens):
        shown[point] = f".{after}"
    return "".join(shown).strip()
