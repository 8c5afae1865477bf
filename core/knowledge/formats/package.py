"""The zip package that modern office files are, looked through before any library opens it."""

import io
import zipfile

from core.knowledge.document import DocumentKind, ParseLimits
from core.knowledge.formats.unreadable import Unreadable

_KINDS: tuple[tuple[str, DocumentKind], ...] = (
    ("word/document", "docx"),
    ("ppt/presentation", "pptx"),
    ("xl/workbook", "xlsx"),
)
_DECLARATIONS = tuple(
    mark.encode(encoding)
    for mark in ("<!DOCTYPE", "<!ENTITY")
    for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)
_PROLOGUE_BYTES = 65_536
_ENCRYPTED = 0x1


def package_kind(content: bytes) -> DocumentKind | None:
    """Which office file a zip is, or None. Raises Unreadable for a zip that cannot be opened."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            names = package.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise Unreadable("broken") from error
    return next(
        (kind for prefix, kind in _KINDS if any(name.startswith(prefix) for name in names)), None
    )


def check_package(content: bytes, limits: ParseLimits) -> None:
    """Raises Unreadable for a package that unpacks to too much, or whose XML declares entities.

    The standard (ECMA-376 part 2) forbids document type declarations, so that none is there in good faith.
    A part cannot unpack to more than it declares: zipfile stops there.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        parts = package.infolist()
        if len(parts) > limits.zip_parts_max:
            raise Unreadable("unpacked")
        if sum(part.file_size for part in parts) > limits.zip_bytes_max:
            raise Unreadable("unpacked")
        for part in parts:
            if part.flag_bits & _ENCRYPTED:
                raise Unreadable("protected")
            if part.filename.lower().endswith((".xml", ".rels", ".vml")):
                _check_prologue(package, part)


def _check_prologue(package: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    with package.open(part) as opened:
        head = opened.read(_PROLOGUE_BYTES)
    if any(mark in head for mark in _DECLARATIONS):
        raise Unreadable("hostile")
