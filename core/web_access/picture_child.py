"""The child process that makes a picture fit for a model: `python -m core.web_access.picture_child ARGUMENTS LIMITS`.

The picture is standard input. Standard output is one line of JSON, and after it the picture, or nothing after an error.
"""

import io
import json
import os
import sys

from PIL import Image, ImageOps

from core.knowledge.document import ParseLimits
from core.knowledge.parsing.child import limit_this_process

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_NICENESS = 5
_PIXELS_MAX = 60_000_000
_QUALITIES = (85, 70, 50)
_SHRINK = 0.7
_LOSSLESS_SHARE = 0.4
"""A picture that may be drawn stays sharp, as long as it takes no more than this share of the room."""


class _Unfit(Exception):
    """`str(error)` is the reason, one word."""


def fitted(content: bytes, *, side_max: int, bytes_max: int) -> tuple[bytes, str, tuple[int, int]]:
    """The first frame, upright, without metadata, within the bounds: its bytes, type and size. Raises _Unfit."""
    with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
        if opened.width * opened.height > _PIXELS_MAX:
            raise _Unfit("pixels")
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
    Image.init()
    Image.MAX_IMAGE_PIXELS = None  # looked at above, before anything is unpacked
    limit_this_process(limits)
    os.nice(_NICENESS)
    content = sys.stdin.buffer.read()
    try:
        made, mime_type, (width, height) = fitted(content, **arguments)
    except _Unfit as unfit:
        _say({"error": str(unfit)})
    except MemoryError:
        _say({"error": "memory"})
    except Exception:
        # the edge of this process: whatever the library trips over in a foreign file
        _say({"error": "broken"})
    else:
        _say({"mime_type": mime_type, "width": width, "height": height})
        sys.stdout.buffer.write(made)


def _say(value: dict[str, object]) -> None:
    sys.stdout.buffer.write(json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main()
