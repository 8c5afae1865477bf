"""Whether a picture shows anything."""

import io

from PIL import Image, UnidentifiedImageError

WIDTH_MIN, HEIGHT_MIN = 400, 200
COLOURS_MIN = 16
"""Letters alone have more, by their smooth edges."""
ALMOST_ALL = 0.995


def nothing_shown(content: bytes) -> str | None:
    """Why these bytes are no picture of a page, as a sentence, or None where they may be one."""
    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as opened:
            picture = opened.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        return f"It cannot be read: {error}."
    wide, high = picture.size
    if wide < WIDTH_MIN or high < HEIGHT_MIN:
        return f"It has {wide} x {high} pixels only."
    colours = picture.getcolors(wide * high) or []
    if len(colours) < COLOURS_MIN or max(count for count, _ in colours) > ALMOST_ALL * wide * high:
        return "It is blank."
    return None
