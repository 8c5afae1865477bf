"""Reads EPUB books."""

import posixpath
from urllib.parse import unquote

from core.knowledge.document import Document, Page, ParseLimits
from core.knowledge.parsing.blocks import left_out_page
from core.knowledge.parsing.html import read_html
from core.knowledge.parsing.office import OfficePackage


def read_epub(content: bytes, limits: ParseLimits) -> Document:
    """Reads a book in the order of its spine, with one page per heading. The chapters are read like web pages."""
    package, pages = OfficePackage(content, limits), list[Page]()
    main = package.read_cleaned_root("META-INF/container.xml").xpath("string(//rootfile/@full-path)")
    book = package.read_cleaned_root(main)
    files = {item.get("id"): item.get("href", "") for item in book.iterfind("manifest/item")}
    for reference in book.iterfind("spine/itemref"):
        name = posixpath.normpath(
            posixpath.join(posixpath.dirname(main), unquote(files.get(reference.get("idref"), "")))
        )
        if name.lower() not in package.names():
            package.left_out["missing chapter"] += 1
            continue
        pages += read_html(package.read_part(name), limits).pages
    return Document(
        title=book.xpath("string(metadata/title)").strip(),
        kind="epub",
        pages=(*left_out_page(package.left_out), *pages),
    )
