"""The child process that parses one document: `python -m core.knowledge.parsing.child ARGUMENTS LIMITS`.

Both are JSON: `name` and `wanted_page`, and the parse limits. Reads the file from stdin. Writes JSON lines to stdout:
the pages and then the title and kind, or the reason why the file cannot be read."""

import importlib
import io
import json
import os
import re
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import cast

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Reason, Unreadable

_PROCESS_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn")
_SHUT_OFF = (*_PROCESS_STARTS, "socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo")


def limit_this_process(limits: ParseLimits) -> None:
    """Applies the limits to this process permanently, and forbids network access, child processes and file writes.

    The parent's timeout covers limits that the system does not support."""
    soft = limits.cpu_seconds_max
    for kind, value in (
        (resource.RLIMIT_CPU, (soft, soft + 5)),
        (resource.RLIMIT_AS, (limits.memory_bytes_max, limits.memory_bytes_max)),
        (resource.RLIMIT_FSIZE, (0, 0)),
        (resource.RLIMIT_CORE, (0, 0)),
    ):
        # macOS refuses RLIMIT_AS, and a lower hard limit may be set already
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, value)
    sys.setrecursionlimit(_DEPTH_MAX)
    sys.addaudithook(_shut_off)


def _shut_off(event: str, arguments: tuple[object, ...]) -> None:
    flags = arguments[2] if event == "open" else 0
    if event in _SHUT_OFF or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        raise PermissionError(f"{event} is shut off here")


_READERS: dict[str, tuple[str, ...]] = {
    "pdf": ("pdf", "read_pdf"),
    "docx": ("word", "read_docx"),
    "pptx": ("slides", "read_pptx"),
    "xlsx": ("sheets", "read_xlsx"),
    "xls": ("sheets", "read_xls"),
    **dict.fromkeys(("odt", "ods", "odp"), ("open_documents", "read_open_document")),
    **{kind: ("old_formats", "read_old_format", kind) for kind in ("doc", "ppt", "rtf")},
    "epub": ("epub", "read_epub"),
    **{kind: ("separated", "read_separated", kind) for kind in ("csv", "tsv")},
    "html": ("html", "read_html"),
    "md": ("plain", "read_markdown"),
    "txt": ("plain", "read_text"),
    "eml": ("mail", "read_mail"),
    "zip": ("archive", "read_zip"),
}
"""Module and function by kind, so that each library is imported only for the kind that needs it. A third element is
passed to the function."""

_TEXT_ENDINGS = {
    "csv": (".csv", ".xls"),
    "tsv": (".tsv",),
    "html": (".htm", ".html", ".xhtml"),
    "md": (".md", ".markdown"),
    "eml": (".eml", ".mht", ".mhtml"),
}
_BINARY = re.compile(r"\.(pdf|(?:doc|dot|ppt|pps|pot|xlt)[xm]|xls[xmb]|p[op][st]|od[tsp]|epub)")
"""Endings of file names with which a text, an archive or unknown content counts as broken, because programs do not open
it by such a name. Word and Excel do open texts, pages and e-mails that are named doc or xls."""
_PAGE = re.compile(
    rb"[\xef\xbb\xbf \t\r\n]*+<(?:(?:!doctype )?html|table|\?xml[^>]*+>\s*+<\?mso-application progid=.Excel)",
    re.IGNORECASE,
)
_MAIL = re.compile(rb"[A-Za-z-]++: (?:.*+\n){1,20}?mime-version:", re.IGNORECASE)
STARTS = {
    b"{\\rtf": "rtf",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "ole",
    b"PK\x03\x04": "zip",
    b"%PDF-": "pdf",
    b"\x78\x9f\x3e\x22": "winmail",
}
"""Maps the first bytes of a file to its kind, to its container, or to the reason why it is not read. The two tables
below do the same with names inside containers."""
_OLE_STREAMS = {
    "EncryptedPackage": "protected",
    "WordDocument": "doc",
    "PowerPoint Document": "ppt",
    "Workbook": "xls",
    "Book": "xls",
    "__properties_version1.0": "outlook",
}
"""The kind by the name of a stream in an OLE container. Old Office files are OLE containers, and so are new Office
files with a password."""
_ZIP_PARTS = {
    "xl/workbook.bin": "binary_workbook",
    "index/document.iwa": "apple",
    "index.apxl": "apple",
    "word/": "docx",
    "ppt/": "pptx",
    "xl/": "xlsx",
}
"""The kind by the beginning of the name of a part, in lower case."""
_MIME_TYPES = {
    b"application/epub+zip": "epub",
    b"application/vnd.oasis.opendocument.text": "odt",
    b"application/vnd.oasis.opendocument.spreadsheet": "ods",
    b"application/vnd.oasis.opendocument.presentation": "odp",
}
_MIME_BYTES = 100
BARE_EXCEL = (b"\x09\x00", b"\x09\x02", b"\x09\x04", b"\x09\x08")
"""The first records of Excel files that are older than OLE containers."""
_NICENESS = 5
_DEPTH_MAX = 5_000  # libxml2 reads at most 2,048 nested elements
_SLICE_CHARACTERS = 50_000
_HEADER_CHARACTERS_MAX = 5_000
_SLICE_ENDS = ("\n\n", "\n", " ", "。")
XML_NO_MEMORY = 2
"""libxml2's error code XML_ERR_NO_MEMORY."""


def detect_kind(content: bytes, name: str) -> DocumentKind:
    """Returns the document's kind, by its content. `name` only decides between text formats. Raises Unreadable."""
    ending = PurePosixPath(name).suffix.lower()
    kind = next((kind for start, kind in STARTS.items() if content.startswith(start)), "")
    if kind == "zip":
        kind = _find_zip_kind(content)
    elif kind == "ole":
        kinds = (kind for stream, kind in _OLE_STREAMS.items() if stream.encode("utf-16-le") in content)
        kind = next(kinds, "unsupported")
    elif ending == ".xls" and content.startswith(BARE_EXCEL):
        kind = "xls"
    elif b"%PDF-" in content[:1024] and (ending == ".pdf" or b"startxref" in content[-2048:]):
        kind = "pdf"  # a text may mention the first bytes of a PDF
    elif not kind:
        kind = next((kind for kind, endings in _TEXT_ENDINGS.items() if ending in endings), "txt")
        if kind != "md" and _PAGE.match(content[:256]):
            kind = "html"
        elif _MAIL.match(content[:4096]):
            kind = "eml"
    if kind in ("zip", "unsupported", "txt") and _BINARY.fullmatch(ending):
        kind = "broken"
    if kind not in _READERS:
        raise Unreadable(cast(Reason, kind))
    return cast(DocumentKind, kind)


def _find_zip_kind(content: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            names = [name.replace("\\", "/").lower() for name in package.namelist()]
            with package.open("mimetype") if "mimetype" in names else io.BytesIO() as opened:
                named = _MIME_TYPES.get(opened.read(_MIME_BYTES).strip().removesuffix(b"-template"), "zip")
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, KeyError, RuntimeError):
        return "broken"
    kinds = (kind for start, kind in _ZIP_PARTS.items() if any(name.startswith(start) for name in names))
    return next(kinds, named)


def read_document(content: bytes, name: str, limits: ParseLimits, wanted_page: int = 1) -> Document:
    """Parses the content. For an archive, includes the content of the file that is its `wanted_page`. Raises
    Unreadable, or any exception of the parsing libraries."""
    if not content.strip():
        raise Unreadable("empty")
    kind = detect_kind(content, name)
    module, function, *more = _READERS[kind]
    reader = getattr(importlib.import_module(f"core.knowledge.parsing.{module}"), function)
    document: Document = reader(content, limits, *([wanted_page] if kind == "zip" else more))
    pages = tuple(page for page in document.pages if page.text.strip())
    if not pages:
        raise Unreadable("empty")
    limits.check(characters=sum(len(page.text) for page in pages))
    return replace(document, pages=pages)


def run_as_child(write: Callable[..., None]) -> None:
    """Limits this process, then calls `write(content, limits, **arguments)` with the values from the command line and
    stdin."""
    arguments, limits = json.loads(sys.argv[1]), ParseLimits(**json.loads(sys.argv[2]))
    limit_this_process(limits)
    os.nice(_NICENESS)
    write_result_or_reason(write, sys.stdin.buffer.read(), limits, **arguments)


def write_result_or_reason(
    write: Callable[..., None], content: bytes, limits: ParseLimits, **arguments: object
) -> None:
    """Calls `write`, which writes its result to stdout. Writes a line with the reason if the file cannot be read."""
    try:
        write(content, limits, **arguments)
    except Unreadable as error:
        write_line({"error": error.reason, "fact": error.fact})
    except Exception as error:
        # catches everything, because a library may raise any exception for a broken file
        has_no_memory = type(error).__name__ == "XMLSyntaxError" and getattr(error, "code", 0) == XML_NO_MEMORY
        reason = "memory" if isinstance(error, MemoryError) or has_no_memory else "broken"
        if reason == "broken" and (isinstance(error, RecursionError) or "depth" in str(error)):
            reason = "nested"
        write_line({"error": reason, "fact": type(error).__name__})


def write_line(value: dict[str, object]) -> None:
    line = json.dumps(value, ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(line.encode("utf-8", errors="replace"))
    sys.stdout.buffer.flush()


def write_document(content: bytes, limits: ParseLimits, *, name: str, wanted_page: int = 1) -> None:
    document = read_document(content, name, limits, wanted_page)
    for page in document.pages:
        for part in split_long_page(page):
            write_line(asdict(part))
    write_line({"title": document.title, "kind": document.kind})


def split_long_page(page: Page) -> Iterator[Page]:
    """Splits a very long page, so that no step handles megabytes in one piece. Parts of a table repeat its header."""
    text, start = page.text, 0
    header = "".join(text.splitlines(keepends=True)[:2]) if text.startswith("|") else ""
    if len(header) > _HEADER_CHARACTERS_MAX:
        header = ""
    while len(text) - start > _SLICE_CHARACTERS:
        ends = (text.rfind(mark, start + 1, start + _SLICE_CHARACTERS) for mark in _SLICE_ENDS)
        end = next((end for end in ends if end > start), start + _SLICE_CHARACTERS)
        yield replace(page, text=(header if start else "") + text[start:end])
        start = end + 1 if header else end
    yield replace(page, text=(header if start else "") + text[start:])


if __name__ == "__main__":
    run_as_child(write_document)
