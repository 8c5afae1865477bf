"""The child process that takes the pictures out of the pages of a PDF file that have no text.

`python -m core.knowledge.parsing.scans <arguments as JSON> <limits as JSON>` reads the file from stdin. `first` is the
first page and `count` the number of pictures. Writes a JSON line for each such page, and one with the number of pages.
"""

import base64
import io
import json
import os
import sys
from collections.abc import Iterator

from pypdf import PageObject, PdfReader

from core.knowledge.document import ParseLimits
from core.knowledge.parsing.child import limit_this_process
from core.knowledge.parsing.pdf import has_pictures

_PICTURES_A_PAGE_MAX = 20
_PICTURE_BYTES_MAX = 10_000_000
_NICENESS = 5


def page_pictures(reader: PdfReader, first: int, count: int) -> Iterator[dict[str, object]]:
    """Yields the largest picture of each page without text. It is empty if the page cannot be decoded."""
    for number in range(first, len(reader.pages) + 1):
        page = reader.pages[number - 1]
        if not has_pictures(page) or _has_text(page):
            continue
        yield {"page": number, "picture": base64.b64encode(_largest_picture(page)).decode()}
        count -= 1
        if not count:
            return


def _has_text(page: PageObject) -> bool:
    try:
        return bool(page.extract_text().strip())
    except Exception:
        # pypdf may raise anything for a broken page
        return False


def _largest_picture(page: PageObject) -> bytes:
    largest = b""
    for at in range(min(len(page.images), _PICTURES_A_PAGE_MAX)):
        try:
            content = page.images[at].data
        except Exception:  # noqa: S112 - pypdf may raise anything for a picture; the page may have another
            continue
        if len(largest) < len(content) <= _PICTURE_BYTES_MAX:
            largest = content
    return largest


def main() -> None:
    arguments, limits = json.loads(sys.argv[1]), ParseLimits(**json.loads(sys.argv[2]))
    limit_this_process(limits)
    os.nice(_NICENESS)
    reader = PdfReader(io.BytesIO(sys.stdin.buffer.read()))
    if reader.is_encrypted:
        reader.decrypt("")
    for one in page_pictures(reader, int(arguments["first"]), int(arguments["count"])):
        sys.stdout.write(json.dumps(one) + "\n")
    sys.stdout.write(json.dumps({"pages": len(reader.pages)}) + "\n")


if __name__ == "__main__":
    main()
