"""The child process that reads one web page or image (see `run_as_child`). The argument `kind` is `page` or `picture`.

For a page, the output is JSON with its title and its text as Markdown without menus. For an image, the output is a line
of JSON and then the bytes. If the content cannot be read, the output is a line of JSON with the reason."""

import io
import sys
from typing import Any

import pi_heif  # pyright: ignore[reportMissingTypeStubs]
from PIL import Image, ImageOps

from core.knowledge.document import ParseLimits, Unreadable
from core.knowledge.parsing.blocks import render_blocks
from core.knowledge.parsing.child import run_as_child, write_line
from core.knowledge.parsing.html import HtmlReader, page_title, parse_html
from core.web_access.main_part import find_main_part

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "HEIF")
_PIXELS_MAX = 60_000_000
_QUALITIES = (85, 70, 50)
_SHRINK = 0.7
_LOSSLESS_SHARE = 0.4
"""A picture that may be a drawing is kept as PNG if the PNG uses at most this share of the byte limit."""


def extract_page(content: bytes, *, url: str, charset: str, limits: ParseLimits) -> tuple[str, str]:
    """Returns the page's title and the text of its main part. Both are empty if the content is no page."""
    try:
        tree = parse_html(content, charset)
    except Unreadable:
        return "", ""
    root, boilerplate = find_main_part(tree)
    return page_title(tree), render_blocks(HtmlReader(limits, url).read(root, boilerplate))


def fit_picture(content: bytes, *, side_max: int, bytes_max: int) -> tuple[bytes, str, tuple[int, int]]:
    """Converts the first frame: upright, without metadata, within the limits. Returns its bytes, type and size.

    Raises Unreadable, or any exception of the library.
    """
    with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
        if opened.width * opened.height > _PIXELS_MAX:
            raise Unreadable("pixels")
        is_drawn = opened.format != "JPEG"
        opened.draft("RGB", (side_max, side_max))
        picture: Image.Image = ImageOps.exif_transpose(opened)
        picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    picture.thumbnail((side_max, side_max))
    if is_drawn:
        sharp = _encoded(picture, "PNG", optimize=True)
        if len(sharp) <= bytes_max * _LOSSLESS_SHARE:
            return sharp, "image/png", picture.size
    if picture.mode == "RGBA":
        white = Image.new("RGB", picture.size, "white")
        white.paste(picture, mask=picture.getchannel("A"))
        picture = white
    while True:
        for quality in _QUALITIES:
            encoded = _encoded(picture, "JPEG", quality=quality)
            if len(encoded) <= bytes_max:
                return encoded, "image/jpeg", picture.size
        picture.thumbnail((int(picture.width * _SHRINK) + 1, int(picture.height * _SHRINK) + 1))


def _encoded(picture: Image.Image, kind: str, **options: int) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def write_page(content: bytes, limits: ParseLimits, *, url: str, charset: str) -> None:
    title, text = extract_page(content, url=url, charset=charset, limits=limits)
    write_line({"title": title, "text": text})


def write_picture(content: bytes, limits: ParseLimits, *, side_max: int, bytes_max: int) -> None:
    Image.init()
    pi_heif.register_heif_opener(decode_threads=1)  # pyright: ignore[reportUnknownMemberType]
    Image.MAX_IMAGE_PIXELS = None  # fit_picture checks the size before anything is unpacked
    made, mime_type, (width, height) = fit_picture(content, side_max=side_max, bytes_max=bytes_max)
    write_line({"mime_type": mime_type, "width": width, "height": height})
    sys.stdout.buffer.write(made)


def write_page_or_picture(content: bytes, limits: ParseLimits, *, kind: str, **arguments: Any) -> None:
    write = write_picture if kind == "picture" else write_page
    write(content, limits, **arguments)


if __name__ == "__main__":
    run_as_child(write_page_or_picture)
