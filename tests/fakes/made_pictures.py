"""Generates pictures for tests."""

import base64
import io
import random
import struct
import zlib

from PIL import Image


def picture(kind: str = "PNG", size: tuple[int, int] = (60, 40), *, color: str = "red", **options: object) -> bytes:
    return saved(Image.new("RGB", size, color), kind, **options)


def noise(size: tuple[int, int], kind: str = "PNG") -> bytes:
    """Returns a picture that hardly compresses."""
    drawn = random.Random(7).randbytes(size[0] * size[1] * 3)
    return saved(Image.frombytes("RGB", size, drawn), kind)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def upside(size: tuple[int, int] = (60, 40)) -> bytes:
    """Returns a JPEG whose metadata require a rotation by 90 degrees."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "maker of the camera"
    return picture("JPEG", size, exif=exif)


def bomb(side: int = 40_000) -> bytes:
    """Returns a small PNG that unpacks to gigabytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checked = kind + body
        return struct.pack(">I", len(body)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    packed = zlib.compress(b"\0" * 1_000_000)
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


_HEIC = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAchtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAADRpbG9j"
    "AAAAAERAAAIAAQAAAAAB7AABAAAAAAAAADAAAgAAAAACHAABAAAAAAAAACQAAAA4aWluZgAAAAAAAgAAABVpbmZlAgAAAAABAABodmMxAAAA"
    "ABVpbmZlAgAAAQACAABFeGlmAAAAAA5waXRtAAAAAAABAAABB2lwcnAAAADmaXBjbwAAAHZodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNg"
    "AAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQAqQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbq5Ka5uAhoMCAAAAMDIAAAAwAhYgABAAZE"
    "AcFzwIkAAAATY29scm5jbHgAAQANAAaAAAAAFGlzcGUAAAAAAAAAQAAAAEAAAAAoY2xhcAAAAEAAAAABAAAAMAAAAAEAAAAAAAAAAv////AA"
    "AAACAAAAEHBpeGkAAAAAAwgICAAAAAlpcm90AwAAABlpcG1hAAAAAAAAAAEAAQaBAgMFhIYAAAAaaXJlZgAAAAAAAAAOY2RzYwACAAEAAQAA"
    "AFxtZGF0AAAALCgBrxmACWZ8mm/+2kfd+oPQL/k4GBTbH5N3loM1lz4CcrYDLvo44slS0fnAAAAABkV4aWYAAE1NACoAAAAIAAEBEgADAAAA"
    "AQAGAAAAAAAA"
)


def heic() -> bytes:
    """Returns a photo as telephones take them, blue above red, that must be turned by 90 degrees to 48 x 64. Pillow
    cannot write this format."""
    return base64.b64decode(_HEIC)
