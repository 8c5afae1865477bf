"""Converts Markdown for Discord: aligns tables, turns images into links, neutralizes mass mentions; pure functions."""

import re
from collections.abc import Callable, Sequence

from bots.delivery.markdown import MarkdownBlock, map_outside_code, scan_blocks
from bots.delivery.tables import align_table
from bots.discord.limits import remove_unsendable
from core.domain.outside_text import utf16_length

RenderTable = Callable[[Sequence[str]], Sequence[str]]
_CROWD = re.compile(r"@(?=everyone|here)")
_ROLE = re.compile(r"<@(?=&\d)")
_PICTURE = re.compile(r"!\[([^\]]*)(?:(\]\()|\]|\Z)")
"""Also matches brackets that do not belong to an image, so that no text is scanned twice."""
_DEEP_HEADING = re.compile(r"^#{4,6}\s+(?=\S)(.*)$")
_RULE = re.compile(r"^\s{0,3}([-*_])(?:\s*\1){2,}\s*$")
_CHECK = re.compile(r"^(\s*[-*+]\s+)\[([ xX])\]\s")
_QUOTED = re.compile(r"\s{0,3}>")
_STARTS_BLOCK = re.compile(r"\s{0,3}(?:[>#]|[-*+]\s|\d{1,9}[.)]\s)")
_SPOILER = re.compile(r"(?<!\\)\|(?=\|)|(?<=\|)(?<!\\)\|")
_UNDERLINE = re.compile(r"(?<![\w\\])__(?=[^\s_])([^_\n]+)__(?!\w)")


def neutralize_mentions(text: str) -> str:
    """Breaks mentions of everyone, here and roles with a zero-width joiner, outside inline code."""
    return map_outside_code(text, _unping)


def neutralize_links(text: str) -> str:
    """Breaks the addresses in a text whose links should not be clickable. The text may begin or end inside code."""
    return text.replace("://", ":\u200d//")


def to_discord_markdown(markdown: str, *, length_max: int) -> str:
    """Converts Markdown for Discord. Leaves tables unchanged if the converted ones would be too long."""
    source = remove_unsendable(markdown)
    for table in (align_table, _fenced, list[str]):
        blocks = (one.gap + "\n".join(_block_lines(one, table)) for one in scan_blocks(source))
        text = "".join(blocks)
        if utf16_length(text) <= length_max:
            return text
    return source


def _unping(text: str) -> str:
    return _ROLE.sub("<@\u200d", _CROWD.sub("@\u200d", text))


def _block_lines(block: MarkdownBlock, table: RenderTable) -> Sequence[str]:
    if block.kind == "fence":
        return block.lines
    if block.kind == "table":
        return [neutralize_mentions("\n".join(table(block.lines)))]
    # add the mark to lines that continue a quotation without it, because Discord ends the quotation there
    shown: list[str] = []
    for line in block.lines:
        goes_on = shown and _QUOTED.match(shown[-1]) and not _STARTS_BLOCK.match(line)
        shown.append(f"> {line}" if goes_on else line)
    return [map_outside_code("\n".join(map(_line, shown)), _words)]


def _words(text: str) -> str:
    """Escapes or replaces marks outside code that have another meaning in Discord: bars hide text, and two underscores
    underline it."""
    return _unping(_UNDERLINE.sub(r"**\1**", _SPOILER.sub(r"\|", text)))


def _line(line: str) -> str:
    if heading := _DEEP_HEADING.match(line):
        return f"**{heading.group(1).rstrip('#').rstrip() or '#'}**"
    if _RULE.match(line):
        return "⎯" * 12
    line = _CHECK.sub(lambda m: f"{m.group(1)}{'☐' if m.group(2) == ' ' else '☑'} ", line)
    return _PICTURE.sub(lambda m: f"[{m[1] or 'picture'}](" if m[2] else m[0], line)


def _fenced(lines: Sequence[str]) -> list[str]:
    return ["```", *(line.replace("```", "'''") for line in lines), "```"]
