"""The child process that reads one web page or image: `python -m core.web_access.page_and_picture_child KIND ...`.

Both arguments are JSON; `kind` in the first is `page` or `picture`. The content is standard input. For a page, the
output is JSON with its title and its text as Markdown without menus; for a picture, a line of JSON and then the bytes.
"""

import io
import json
import os
import re
import sys
from importlib import import_module
from typing import Any, Protocol, cast

from PIL import Image, ImageOps

from core.knowledge.document import ParseLimits
from core.knowledge.parsing.child import limit_this_process
from core.knowledge.parsing.html import read_html

_NICENESS = 5
_SPARSE_CHARACTERS = 300
"""trafilatura gives a page of fewer than about 250 characters without its structure."""
_RENAMED = {"time": "span", "figure": "div", "figcaption": "p", "caption": "p", "aside": "div"}
"""trafilatura leaves these out, or takes a caption for a row of the table."""
_NUMBER = "\u2045{}\u2046 "
_MARKED_ITEM = re.compile("(?:(?:[0-9]{1,6}[.]|-) )?\u2045(-?[0-9]{1,10})\u2046 ?")
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_PIXELS_MAX = 60_000_000
_QUALITIES = (85, 70, 50)
_SHRINK = 0.7
_LOSSLESS_SHARE = 0.4
"""A picture that may be a drawing is kept as PNG if the PNG uses at most this share of the byte limit."""


class _Metadata(Protocol):
    title: str | None


class _Trafilatura(Protocol):
    """Types for the part of trafilatura that this module uses."""

    def load_html(self, page: str | bytes) -> Any: ...
    def extract(self, page: Any, **options: object) -> str | None: ...
    def extract_metadata(self, page: Any) -> _Metadata | None: ...


def extract_page(content: bytes, *, url: str, charset: str, limits: ParseLimits) -> tuple[str, str]:
    """Returns the page's title and text. Returns all of its text if hardly any main content is found."""
    import trafilatura

    reader = cast(_Trafilatura, trafilatura)
    html: Any = import_module("lxml.html")
    tree = reader.load_html(_decoded(content, charset))
    if tree is None:
        return "", ""
    metadata = reader.extract_metadata(tree)
    _rename_elements(tree)
    _mark_numbers(tree)
    whole = html.tostring(tree, encoding="utf-8")
    text = reader.extract(
        tree,
        url=url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_comments=False,
        favor_recall=True,
    )
    title = (metadata.title if metadata else "") or ""
    if len(text or "") < _SPARSE_CHARACTERS:
        document = read_html(whole, limits)
        title, text = title or document.title, "\n\n".join(one.text for one in document.pages).strip()
    return title, _MARKED_ITEM.sub(r"\1. ", text or "")


def _rename_elements(tree: Any) -> None:
    for element in list(tree.iter(*_RENAMED)):
        if element.tag == "aside" and next(element.iterancestors("article", "main"), None) is None:
            continue  # it stands beside the page's own text
        if element.tag == "caption" and element.getparent().tag == "table":
            element.getparent().addprevious(element)
        element.tag = _RENAMED[element.tag]


def _mark_numbers(tree: Any) -> None:
    """Writes the number of each item of an ordered list into its text: trafilatura counts from 1 in each list."""
    for items in tree.iter("ol"):
        number = _whole_number(items.get("start"), 1)
        for item in items.iterchildren("li"):
            number = _whole_number(item.get("value"), number)
            is_in_paragraph = len(item) and item[0].tag == "p" and not (item.text or "").strip()
            words = item[0] if is_in_paragraph else item
            words.text = _NUMBER.format(number) + (words.text or "").lstrip()
            number += 1


def _whole_number(written: str | None, default: int) -> int:
    return int(written) if written and re.fullmatch("-?[0-9]{1,9}", written.strip()) else default


def _decoded(content: bytes, charset: str) -> str | bytes:
    """Returns the text decoded with the server's charset, or the bytes if that fails, so that the parser decides."""
    if not charset:
        return content
    try:
        return content.decode(charset)
    except (LookupError, UnicodeDecodeError):
        return content


class _PictureRefused(Exception):
    """Raised if a picture cannot be converted. The message is the reason, in one word."""


def fit_picture(content: bytes, *, side_max: int, bytes_max: int) -> tuple[bytes, str, tuple[int, int]]:
    """Converts the first frame: upright, without metadata, within the limits. Returns its bytes, type and size.

    Raises _PictureRefused.
    """
    with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
        if opened.width * opened.height > _PIXELS_MAX:
            raise _PictureRefused("pixels")
        is_drawn = opened.format != "JPEG"
        opened.draft("RGB", (side_max, side_max))
        picture: Image.Image = ImageOps.exif_transpose(opened)
        picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    picture.thumbnail((side_max, side_max))
    if is_drawn:
        sharp = _encoded(picture, "PNG", optimize=True)
        if len(sharp) <= bytes_max * _LOSSLESS_SHARE:
            return sharp, "image/png", picture.size
    return _small(_on_white(picture), bytes_max)


def _small(picture: Image.Image, bytes_max: int) -> tuple[bytes, str, tuple[int, int]]:
    while True:
        for quality in _QUALITIES:
            encoded = _encoded(picture, "JPEG", quality=quality)
            if len(encoded) <= bytes_max:
                return encoded, "image/jpeg", picture.size
        picture.thumbnail((int(picture.width * _SHRINK) + 1, int(picture.height * _SHRINK) + 1))


def _on_white(picture: Image.Image) -> Image.Image:
    if picture.mode != "RGBA":
        return picture
    white = Image.new("RGB", picture.size, "white")
    white.paste(picture, mask=picture.getchannel("A"))
    return white


def _encoded(picture: Image.Image, kind: str, **options: int) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def main() -> None:
    arguments, limits = json.loads(sys.argv[1]), ParseLimits(**json.loads(sys.argv[2]))
    kind = arguments.pop("kind")
    if kind == "picture":
        Image.init()
        Image.MAX_IMAGE_PIXELS = None  # fit_picture checks the size before anything is unpacked
    limit_this_process(limits)
    os.nice(_NICENESS)
    content = sys.stdin.buffer.read()
    if kind == "picture":
        _write_picture(content, arguments)
    else:
        title, text = extract_page(content, limits=limits, **arguments)
        page = json.dumps({"title": title, "text": text}, ensure_ascii=False)
        sys.stdout.buffer.write(page.encode("utf-8", "replace"))


def _write_picture(content: bytes, arguments: dict[str, int]) -> None:
    try:
        made, mime_type, (width, height) = fit_picture(content, **arguments)
    except _PictureRefused as refused:
        _write_line({"error": str(refused)})
    except MemoryError:
        _write_line({"error": "memory"})
    except Exception:
        # catches everything, because the library may raise any exception for a broken file
        _write_line({"error": "broken"})
    else:
        _write_line({"mime_type": mime_type, "width": width, "height": height})
        sys.stdout.buffer.write(made)


def _write_line(value: dict[str, object]) -> None:
    sys.stdout.buffer.write(json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main()
