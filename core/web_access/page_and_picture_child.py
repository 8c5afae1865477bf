"""The child process that reads one web page or image: `python -m core.web_access.page_and_picture_child KIND ...`.

Both arguments are JSON; `kind` in the first is `page` or `picture`. The content is standard input. For a page, the
output is JSON with its title and its text as Markdown without menus; for a picture, a line of JSON and then the bytes.
"""

import io
import json
import os
import sys

import pi_heif  # pyright: ignore[reportMissingTypeStubs]
from PIL import Image, ImageOps

from core.knowledge.document import ParseLimits, Unreadable
from core.knowledge.parsing.child import limit_this_process
from core.knowledge.parsing.html import HtmlReader, page_title, parse_html
from core.knowledge.parsing.model import render_blocks
from core.web_access.main_part import find_main_part

_NICENESS = 5
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "HEIF")
_PIXELS_MAX = 60_000_000
_QUALITIES = (85, 70, 50)
_SHRINK = 0.7
_LOSSLESS_SHARE = 0.4
"""A picture that may be a drawing is kept as PNG if the PNG uses at most this share of the byte limit."""


def extract_page(content: bytes, *, url: str, charset: str, limits: ParseLimits) -> tuple[str, str]:
    """Returns the page's title and the text of its main part. Both are empty for what is no page."""
    try:
        tree = parse_html(content, charset)
    except Unreadable:
        tree = None
    if tree is None:
        return "", ""
    root, boilerplate = find_main_part(tree)
    return page_title(tree), render_blocks(HtmlReader(limits, url).read(root, boilerplate.__contains__))


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
        pi_heif.register_heif_opener(decode_threads=1)  # pyright: ignore[reportUnknownMemberType]
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
