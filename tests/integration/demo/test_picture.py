"""A picture that shows nothing is told from one that shows something."""

import io

import pytest
from PIL import Image

from bots.demo.file_stories import find_picture_problem

SIZE = (1280, 800)


def shades(size: tuple[int, int]) -> Image.Image:
    wide, high = size
    return Image.frombytes("L", size, (bytes(range(251)) * (wide * high // 251 + 1))[: wide * high])


def written(picture: Image.Image, kind: str = "PNG") -> bytes:
    held = io.BytesIO()
    picture.save(held, kind)
    return held.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_picture_of_something_is_one(kind: str) -> None:
    assert find_picture_problem(written(shades(SIZE), kind)) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read"),
        (b"<html>no picture</html>", "cannot be read"),
        (written(shades(SIZE))[:500], "cannot be read"),
        (written(shades(SIZE), "GIF"), "cannot be read"),
        (written(shades((80, 50))), "80 x 50 pixels only"),
        (written(Image.new("RGB", SIZE, "white")), "blank"),
        (written(Image.new("RGB", SIZE, "white"), "JPEG"), "blank"),
    ],
)
def test_what_is_none_is_found_out(content: bytes, said: str) -> None:
    assert said in str(find_picture_problem(content))


def test_one_speck_on_an_empty_page_is_blank_too() -> None:
    picture = Image.new("RGB", SIZE, "white")
    picture.paste(shades((40, 40)), (10, 10))
    assert "blank" in str(find_picture_problem(written(picture)))
