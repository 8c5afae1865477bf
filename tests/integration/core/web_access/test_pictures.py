"""Pictures made fit for a model, whatever they are."""

import io

import pytest
from PIL import Image

from core.domain.errors import ToolError
from core.web_access.pictures import SHOWN_BYTES_MAX, prepare_picture
from tests.fakes import made_pictures as made


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_each_promised_kind_is_taken(kind: str) -> None:
    fit = await prepare_picture(made.picture(kind), name="a")
    assert fit.mime_type in ("image/png", "image/jpeg")
    with Image.open(io.BytesIO(fit.content)) as shown:
        assert shown.size == (fit.width, fit.height) == (60, 40)
        pixel = shown.convert("RGB").getpixel((20, 20))
        assert isinstance(pixel, tuple)
        red, green, blue = pixel
        assert red > 240
        assert max(green, blue) < 20


async def test_a_large_picture_shrinks_below_what_models_take() -> None:
    content = made.noise((1800, 1700), "PNG")
    assert 9_000_000 < len(content) < 10_000_000
    fit = await prepare_picture(content, name="a")
    assert len(fit.content) <= SHOWN_BYTES_MAX
    assert len(fit.content) * 4 / 3 <= 5_000_000
    wide = await prepare_picture(made.picture(size=(6000, 3000)), name="a")
    assert (wide.width, wide.height) == (1920, 960)


async def test_it_stands_upright_and_keeps_no_metadata() -> None:
    fit = await prepare_picture(made.upside((60, 40)), name="a")
    assert (fit.width, fit.height) == (40, 60)
    assert b"maker of the camera" not in fit.content


async def test_a_photo_of_a_telephone_is_shown_upright() -> None:
    fit = await prepare_picture(made.heic(), name="a")
    with Image.open(io.BytesIO(fit.content)) as shown:
        assert shown.size == (fit.width, fit.height) == (48, 64)
        right, left = (shown.convert("RGB").getpixel((x, 30)) for x in (40, 8))
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    assert left[0] > 200 > left[2]
    assert right[2] > 200 > right[0]


async def test_what_can_be_seen_through_is_kept_or_put_on_white() -> None:
    clear = made.saved(Image.new("RGBA", (30, 30), (0, 0, 0, 0)), "PNG")
    fit = await prepare_picture(clear, name="a")
    with Image.open(io.BytesIO(fit.content)) as shown:
        assert shown.mode == "RGBA"
    noisy = Image.open(io.BytesIO(made.noise((1500, 1500)))).convert("RGBA")
    noisy.putalpha(0)
    fit = await prepare_picture(made.saved(noisy, "PNG"), name="a")
    with Image.open(io.BytesIO(fit.content)) as shown:
        assert min(shown.convert("RGB").getpixel((700, 700))) > 250


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged"),
        (b"just text", "damaged"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "damaged"),
        (made.saved(Image.new("RGB", (9, 9)), "TIFF"), "damaged"),
        (made.noise((300, 300))[:20_000], "damaged"),
        (made.bomb(), "too many pixels"),
        (b"x" * 10_000_001, "larger than 10 MB"),
    ],
    ids=["nothing", "text", "svg", "tiff", "cut off", "bomb", "large"],
)
async def test_what_is_no_fit_picture_is_told(content: bytes, said: str) -> None:
    with pytest.raises(ToolError, match=rf"^logo\.png .*{said}"):
        await prepare_picture(content, name="logo.png")
