"""Decides which addresses in an answer may be links. All others are shown as code.

An address can carry data to the owner of its host. So after the model has read text from outside, an address is a link
only if a user named its host or if the model was given the whole address: in text that it read, or by the program."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from markdown_it import MarkdownIt
from markdown_it.common.utils import unescapeAll
from markdown_it.token import Token

from core.domain.call_targets import find_addresses, normalize_target
from core.domain.outside_text import escape_markdown, inline_code
from core.domain.sources import NO_SOURCES, Sources
from core.domain.threads import Reply

MARKDOWN_CHARACTERS_MAX = 100_000
"""A longer answer is checked line by line. If that is not possible, all its Markdown is shown literally."""
HELD_CHARACTERS_MAX = 10_000
"""The maximum length of a line that is held back because it may contain a link."""
_TOKEN = re.compile(
    r"!?\[(?P<label>[^\[\]\n]*)\]\((?P<inside>[^()\n]*(?:\([^()\n]*\)[^()\n]*)*)\)"
    r"|<(?P<angle>[^\s<>|]+)(?:\|(?P<words>[^<>\n]*))?>"
    r"|^(?P<before>[ \t>]{0,9})\[(?P<name>[^\[\]\n]+)\]:[ \t]*(?P<place>\S+)"
    r"|(?P<run>[^\s<\[]+)(?P<joined>(?=\[))?",
    re.MULTILINE,
)
"""Matches a link or an image, an address in angle brackets, a link in Slack's own syntax, a link definition, or a word.
The maximum length of a word is longer than any address that chats recognise."""
_RUN = re.compile(r"[^\s<>\"`\\]+")
_EDGES = ".,;:!?*_~'\"()[]{}|。，、）」،؛؟"
_SENTENCE_ENDS = ".,;:!?*_~'\"。，、」،؛؟"
_HAN_LETTERS = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HAN_SIGNS = "，、！？；（）「」『』【】《》〈〉…"
"""Chinese and Japanese characters that no host name contains. Full-width full stops and colons are not among them,
because browsers read them as "." and ":"."""
_HAN_WORDS = re.compile(f"[{_HAN_LETTERS}{_HAN_SIGNS}。：]*")
_HAN_SENTENCES = re.compile(
    f"(?:[{_HAN_LETTERS}{_HAN_SIGNS}A-Za-z0-9]|(?<=[{_HAN_LETTERS}{_HAN_SIGNS}])[。：]|(?<=[{_HAN_SIGNS}])[*_~'\"])*"
    f"(?<=[{_HAN_SIGNS}。：])"
)
"""Words at the end of a text, up to a character that cannot be part of the address that follows."""
_HAN_BEFORE_ADDRESS = re.compile(f"[{_HAN_LETTERS}{_HAN_SIGNS}。：]*(?=https?://|www\\.)", re.IGNORECASE)
_HAN_TAIL = re.compile(f"(?<=[a-z0-9/])[{_HAN_SIGNS}][{_HAN_LETTERS}{_HAN_SIGNS}]*", re.IGNORECASE)
_HAN_PART = re.compile(f"(?P<run>[^{_HAN_LETTERS}{_HAN_SIGNS}。：][^{_HAN_SIGNS}。]*)")
"""What is shown as code if a word contains such characters."""
_BETWEEN_NAMES = re.compile(r"[()\[\]{},;|'=]")
_ADDRESS_SIGN = re.compile("[.:/@\uff0e\u3002\uff1a\uff0f\uff20]")
_AUTHORITY_END = re.compile(r"[/?#]")
_SIGNS = re.compile(r"[^\w.:@-]+")
"""What may stand directly before a host, such as an arrow or the end of bold text."""
_CODE = re.compile(r"`[^`\n]+`")
_CODE_IN_ONE_CELL = re.compile(r"`[^`|\n]+`")
_BACKTICKS = re.compile("`+")
_FENCE = "```"
_FENCE_START = re.compile(r" {0,3}```[^`\n]*\n")
_FENCE_END = re.compile(r" {0,3}```[ \t]*\n?")
_MARK = re.compile(r"[\[<`]")
"""If a line contains one of these, it is held back until its end is known."""
_STYLE = re.compile(r"[\[\]<`~&\\\r]")
"""A text with none of these characters contains nothing but plain words."""
_DOUBTFUL = re.compile(r"`|~~~|\r|\]:|\]\([ \t]*$", re.MULTILINE)
"""Outside of code, these can change how the lines around them are parsed."""
_FRAME = " \t>\n"


class _Parser(MarkdownIt):
    """A parser that accepts every address as a link target and does not rewrite it."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - the library's name
        return url

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        return True


_MARKDOWN = _Parser("commonmark", {"html": False}).enable(["table", "strikethrough"])
_WITHOUT_LINKS = _Parser("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["link", "image"])


@dataclass(frozen=True)
class LinkRule:
    """The rule for which addresses in an answer may be links once the model has read text from outside. `given` returns
    the addresses in the texts of users and from outside that the model was given."""

    sources: Sources = NO_SOURCES
    given: Callable[[], Iterable[str]] = tuple[str, ...]

    @cached_property
    def _given(self) -> frozenset[str]:
        """The addresses that the model was given in full."""
        visited = (source.name for source in self.sources.read if source.kind in ("page", "browser"))
        return frozenset(map(_without_slash, (*self.sources.offered, *visited, *self.given())))

    def allows_link(self, target: str) -> bool:
        """Returns whether a link may lead to the target. A path without a host leads nowhere, so it is allowed."""
        if not target or target.startswith("#") or (target.startswith("/") and target[1:2] not in ("/", "\\")):
            return True
        has_scheme = ":" in _AUTHORITY_END.split(target, maxsplit=1)[0] or target.startswith("//")
        value = normalize_target(target if has_scheme else f"https://{target}")
        return value in self.sources.named or _without_slash(target) in self._given

    def allows_words(self, words: str) -> bool:
        return all(self.allows_run(run) for run in words.split())

    def allows_run(self, run: str, *, is_whole: bool = True) -> bool:
        """Returns whether chats may turn a run of characters without blanks into a link, both as it is written and as
        it is shown. If `is_whole` is False, more characters of the address may follow."""
        return all(self._allows_shown(shown, is_whole=is_whole) for shown in {run, unescapeAll(run)})

    def _allows_shown(self, run: str, *, is_whole: bool) -> bool:
        core = _without_sentences(run.strip(_EDGES)).strip(_EDGES)
        if not _ADDRESS_SIGN.search(core) or _HAN_WORDS.fullmatch(core):
            return True
        is_given = is_whole and _without_slash(core) in self._given
        core = _without_tail(core)
        before, _, path = core.partition("/")
        values = set(map(normalize_target, (*find_addresses(core), *find_addresses(_SIGNS.sub(" ", before)))))
        host = _SIGNS.split(before)[-1]
        ending = host.rpartition(".")[2]
        if ending.isalpha() and len(ending) > 1 and host.count(".") > (not path):
            # `secret.evil.md` may be a host name although it ends like a file name
            values |= {value for value in [normalize_target(f"https://{host}")] if value.startswith("host:")}
        return is_given or values <= self.sources.named


def hide_links(markdown: str, rule: LinkRule) -> str:
    """Returns the answer in which every address that must not be a link is code. Other text is unchanged, unless
    platforms might parse the answer in different ways."""
    if len(markdown) > MARKDOWN_CHARACTERS_MAX:
        if (hidden := LinkGate(rule).judge_whole(markdown)) is not None:
            return hidden
    elif not shows_link(markdown, rule):
        return markdown
    elif not shows_link(hidden := _hide_outside_fences(markdown, rule), rule):
        return hidden
    return "\n".join(" ".join(_as_plain_words(line, rule)) for line in markdown.splitlines())


def hide_links_of_reply(reply: Reply, rule: LinkRule) -> Reply:
    """Returns the reply in which every address that must not be a link is code, including the addresses that it
    attaches."""
    addresses = [path for path in reply.attachments if "://" in path and not rule.allows_link(path)]
    return replace(
        reply,
        text="\n".join(filter(None, [hide_links(reply.text, rule), *map(inline_code, addresses)])),
        preface=hide_links(reply.preface, rule),
        options=tuple(hide_links(option, rule) for option in reply.options),
        attachments=tuple(path for path in reply.attachments if path not in addresses),
    )


def shows_link(markdown: str, rule: LinkRule) -> bool:
    """Returns whether any platform might create a link that is not allowed. Text counts as code only if every platform
    must parse it as code. An answer that is too long to be parsed counts as unsafe."""
    if len(markdown) > MARKDOWN_CHARACTERS_MAX:
        return True
    definitions: dict[str, dict[str, dict[str, str]]] = {}
    parser = _MARKDOWN if "](" in markdown or "]:" in markdown else _WITHOUT_LINKS
    tokens = parser.parse(markdown, definitions)
    parts = [part for token in tokens for part in token.children or ()]
    links = [str(part.attrGet("href") or part.attrGet("src") or "") for part in parts]
    links += [definition["href"] for definition in definitions.get("references", {}).values()]
    if not all(map(rule.allows_link, links)):
        return True
    if any("`" in part.content for part in parts if part.type != "code_inline"):
        return not _is_plain(markdown, rule)
    lines = _split_lines(markdown)
    texts = [_without_code(token.content) for token in tokens if token.type == "inline"]
    texts += [_without_inline_code(token.content) for token in tokens if token.type == "code_block"]
    texts += [token.content for token in tokens if _is_doubtful_fence(token, lines)]
    return not all(_is_plain(text, rule) for text in texts)


def written_addresses(text: str) -> Iterator[str]:
    """Yields the addresses in a text, with each possible end of them."""
    for run in _RUN.findall(text):
        if _ADDRESS_SIGN.search(run):
            start = run.lower().find("http")
            address = run[max(start, 0) :].partition("](")[0] if "://" in run else ""
            whole = address.rstrip(_SENTENCE_ENDS)
            yield from filter(None, (whole, whole.removesuffix(")"), address.strip(_EDGES)))
            if not address:
                yield from (part.strip(_EDGES) for part in _BETWEEN_NAMES.split(run))


class LinkGate:
    """Releases the text of an answer piece by piece while it is written, in the same form in which `hide_links` shows
    the complete answer. From the first text whose form depends on what follows, the rest is held back until the answer
    is complete."""

    def __init__(self, rule: LinkRule) -> None:
        self._rule = rule
        self._held = ""
        self._passed: list[str] = []
        self._indent: str | None = None
        """The prefix of every line in the open code block, or None if no block is open."""
        self._waiting: list[str] = []
        """The lines of the code block that may be shown only once the block is closed."""
        self._is_line_start = self._is_plain = True
        self._is_shut = self._is_doubtful = False

    def feed(self, piece: str) -> str:
        """Returns the text that can be shown now: whole words, or whole lines if they may contain a link or code."""
        if self._is_shut:
            return ""
        *lines, self._held = f"{self._held}{piece}".split("\n")
        shown = [self._pass(f"{line}\n") for line in lines]
        if self._indent is None:
            mark = _MARK.search(self._held)
            length = self._held.rfind(" ", 0, mark.start() if mark else None) + 1
            sentences = _HAN_SENTENCES.match(self._held, length, mark.start() if mark else len(self._held))
            length = sentences.end() if sentences else length
            if not self._held[:length].isspace():
                shown.append(self._pass(self._held[:length]))
                self._held = self._held[length:]
        self._is_shut |= len(self._held) > HELD_CHARACTERS_MAX
        return "".join(shown)

    def flush(self) -> str:
        """Returns the text that was held back until the end of its word or line, if it can be shown. Later text is held
        back."""
        shown = self._pass(self._held)
        self._is_shut = True
        return shown

    def close(self, text: str) -> tuple[str, str | None]:
        """Returns the complete answer as users may see it, and the part that was not released before. The part is None
        if the answer does not begin with what was released. `text` is all the text that was fed."""
        whole, passed = hide_links(text, self._rule), "".join(self._passed)
        return whole, whole.removeprefix(passed) if whole.startswith(passed) else None

    def judge_whole(self, text: str) -> str | None:
        """Returns a complete answer as users may see it, or None if platforms might parse it in different ways."""
        shown = self.feed(f"{text}\n")
        return None if self._is_shut or self._waiting else shown.removesuffix("\n")

    def _pass(self, piece: str) -> str:
        if self._is_shut or not piece:
            return ""
        is_plain = _is_plain(piece, self._rule)
        self._is_plain &= is_plain
        is_start = self._is_line_start and not self._is_doubtful and _FENCE_START.fullmatch(piece) is not None
        is_code = is_start or self._indent is not None
        shown = self._judge_code(piece, is_plain=is_plain) if is_code else self._judge_words(piece, is_plain=is_plain)
        self._is_line_start = piece.endswith("\n")
        self._is_shut = shown is None
        self._passed.append(shown or "")
        return shown or ""

    def _judge_words(self, piece: str, *, is_plain: bool) -> str | None:
        """Returns the form in which the piece can be shown, or None if that depends on the rest of the answer."""
        if is_plain and not _STYLE.search(piece):
            return piece
        before = "" if self._is_line_start else "x "
        hidden = _hide_outside_code(f"{before}{piece}", self._rule)
        self._is_doubtful |= bool(_DOUBTFUL.search(_CODE_IN_ONE_CELL.sub("", hidden)))
        is_link = shows_link(hidden, self._rule) or (self._is_doubtful and not self._is_plain)
        return None if is_link else hidden.removeprefix(before)

    def _judge_code(self, line: str, *, is_plain: bool) -> str | None:
        """Returns the part of a code block that can be shown now that its next line is known, or None if chats may
        parse the block in different ways."""
        is_start, is_end = self._indent is None, _FENCE_END.fullmatch(line) is not None
        self._indent = line.partition(_FENCE)[0] if self._indent is None else self._indent
        is_inside = line.startswith(self._indent) or line.isspace()
        self._is_doubtful |= not is_inside or (_FENCE in line and not is_start and not is_end)
        if self._is_doubtful and not self._is_plain:
            return None
        self._waiting += [line] * (not is_plain or bool(self._waiting))
        shown = "" if self._waiting else line
        if self._is_doubtful or (is_end and not is_start):
            shown, self._indent, self._waiting = "".join(self._waiting) or line, None, []
        return shown


def _is_plain(text: str, rule: LinkRule) -> bool:
    """Returns whether nothing in the text can become a link that is not allowed, even if none of the text is code."""
    return all(is_allowed for _, is_allowed in _judge_tokens(text, rule))


def _judge_tokens(text: str, rule: LinkRule) -> Iterator[tuple[re.Match[str], bool]]:
    """Yields each word or possible link, and whether it may be shown as a link."""
    for token in _TOKEN.finditer(text):
        target, words = _target_of(token), token["label"] or token["words"] or ""
        if token["run"] is not None:
            yield token, rule.allows_run(token["run"], is_whole=token["joined"] is None)
        elif token["angle"] is not None:
            yield token, rule.allows_run(target) and rule.allows_words(words)
        else:
            yield token, rule.allows_link(target) and rule.allows_words(words)


def _judge_parts(text: str, rule: LinkRule) -> Iterator[tuple[re.Match[str], bool]]:
    """Yields the tokens. If a word must not be a link, the Chinese and Japanese text around its addresses is split
    off."""
    for token, is_allowed in _judge_tokens(text, rule):
        is_run = token["run"] is not None and not is_allowed
        parts = [*filter(_has_address_sign, _HAN_PART.finditer(text, *token.span()))] if is_run else []
        yield from ((part, False) for part in parts)
        if not parts:
            yield token, is_allowed


def _has_address_sign(part: re.Match[str]) -> bool:
    return _ADDRESS_SIGN.search(unescapeAll(part[0]).strip(_EDGES)) is not None


def _without_sentences(run: str) -> str:
    """Returns the text without the Chinese or Japanese words before its last word or address."""
    sentences = _HAN_SENTENCES.match(run)
    run = run[sentences.end() :].lstrip(_EDGES) if sentences else run
    words = _HAN_BEFORE_ADDRESS.match(run)
    return run[words.end() :] if words else run


def _without_tail(run: str) -> str:
    """Returns a run without the Chinese or Japanese text at its end that follows punctuation of these scripts. Text
    with a full stop stays, because it may belong to a host name."""
    sign = _HAN_TAIL.search(run)
    return run[: sign.start()] if sign and sign.end() == len(run) else run


def _target_of(token: re.Match[str]) -> str:
    if token["inside"] is None:
        return token["angle"] or token["place"] or ""
    inside = token["inside"].strip()
    return inside[1:].partition(">")[0] if inside.startswith("<") else (inside.split(maxsplit=1) or [""])[0]


def _hide_outside_fences(markdown: str, rule: LinkRule) -> str:
    lines, pieces, done = _split_lines(markdown), list[str](), 0
    for token in _WITHOUT_LINKS.parse(markdown):
        if token.type == "fence" and token.map and not _is_doubtful_fence(token, lines):
            start, end = token.map
            before = _hide_outside_code("\n".join(lines[done:start]), rule)
            pieces += [before] * (start > done) + lines[start:end]
            done = end
    rest = _hide_outside_code("\n".join(lines[done:]), rule)
    return "\n".join([*pieces, rest] if done < len(lines) else pieces)


def _hide_outside_code(text: str, rule: LinkRule) -> str:
    masked = _CODE.sub(lambda code: "\0" * len(code[0]), text)
    pieces, end = list[str](), 0
    for token, is_allowed in _judge_parts(masked, rule):
        start, before = token.start(), end
        end = token.end()
        pieces += [text[before:start], text[start:end] if is_allowed else _hidden_form(token, text, rule)]
    return "".join([*pieces, text[end:]])


def _hidden_form(token: re.Match[str], text: str, rule: LinkRule) -> str:
    """Returns a word as code, or a link as its text with its address as code. A blank is inserted wherever a link was,
    so that a long text cannot be split inside of code."""
    if token["run"] is not None:
        core = token["run"].strip(f"{_EDGES}\0")
        start = token.start() + token["run"].index(core)
        end = start + len(core)
        left, right = text[token.start() : start], text[end : token.end()]
        blank_left, blank_right = " " * left.endswith("`"), " " * right.startswith("`")
        return f"{left}{blank_left}{inline_code(text[start:end])}{blank_right}{right}"
    shown = inline_code(_target_of(token))
    if token["name"] is not None:
        return f"{token['before']}\\[{token['name']}]: {shown}"
    words = text[slice(*token.span("label" if token["angle"] is None else "words"))].strip()
    words = words if rule.allows_words(words) else ""
    before, after = text[: token.start()][-1:], text[token.end() :][:1]
    left, right = (" " if near.isalnum() or near in ("`", "[", "<", "!") else "" for near in (before, after or "."))
    return f"{left}{words or 'link'} ({shown}){right}"


def _as_plain_words(line: str, rule: LinkRule) -> Iterator[str]:
    """Yields the words of a line without styles. A word that might become a link is yielded as code."""
    for word in line.split():
        yield escape_markdown(word.replace("`", "'")) if rule.allows_run(word) else inline_code(word)


def _without_code(content: str) -> str:
    """Returns the text of a paragraph without its code. Every backtick must belong to code."""
    pieces, end, opening = list[str](), 0, ""
    for ticks in _BACKTICKS.finditer(content):
        if not opening:
            pieces.append(content[end : ticks.start()])
            opening = ticks[0]
        elif ticks[0] == opening:
            end, opening = ticks.end(), ""
    return " ".join([*pieces, content[end:]])


def _without_inline_code(content: str) -> str:
    """Returns an indented block without the parts that are code even if the block itself is parsed as text."""
    rest = _CODE.sub(" ", content)
    return content if "`" in rest else rest


def _split_lines(markdown: str) -> list[str]:
    """Returns the lines as the Markdown parser counts them."""
    return markdown.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _is_doubtful_fence(token: Token, lines: Sequence[str]) -> bool:
    """Returns whether the token is a code block that a platform might end elsewhere or parse as text."""
    if token.type != "fence" or token.map is None:
        return False
    start, end = token.map
    is_closed = end - start > 1 and lines[end - 1].strip(_FRAME) == _FENCE
    return token.markup != _FENCE or _FENCE in token.content or not is_closed


def _without_slash(address: str) -> str:
    return address.removesuffix("/")
