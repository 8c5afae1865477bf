"""The child process that reads one web page: `python -m core.web_access.page_child ARGUMENTS LIMITS`, both JSON.

The page is standard input. Standard output is JSON: title and text, as Markdown without menus and the like.
"""

import json
import os
import sys
from typing import Protocol, cast

from core.knowledge.document import ParseLimits
from core.knowledge.parsing.child import limit_this_process
from core.knowledge.parsing.html import read_html

_NICENESS = 5
_SPARSE_CHARACTERS = 200


class _Metadata(Protocol):
    title: str | None


class _Trafilatura(Protocol):
    """What is used of the package."""

    def extract(self, page: str | bytes, **options: object) -> str | None: ...
    def extract_metadata(self, page: str | bytes) -> _Metadata | None: ...


def read(content: bytes, *, url: str, charset: str, limits: ParseLimits) -> tuple[str, str]:
    """Title and text. Where hardly any content is found, all of the page's text is taken."""
    import trafilatura

    reader = cast(_Trafilatura, trafilatura)
    page = _decoded(content, charset)
    metadata = reader.extract_metadata(page)
    text = reader.extract(
        page,
        url=url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_comments=False,
        favor_recall=True,
    )
    title = (metadata.title if metadata else "") or ""
    if text and len(text) >= _SPARSE_CHARACTERS:
        return title, text
    whole = read_html(page.encode() if isinstance(page, str) else page, limits)
    everything = "\n\n".join(one.text for one in whole.pages).strip()
    longer = everything if len(everything) > 2 * len(text or "") else text
    return title or whole.title, longer or ""


def _decoded(content: bytes, charset: str) -> str | bytes:
    """What the server says of the encoding counts, if it is true; else the page is asked."""
    if not charset:
        return content
    try:
        return content.decode(charset)
    except (LookupError, UnicodeDecodeError):
        return content


def main() -> None:
    arguments, limits = json.loads(sys.argv[1]), ParseLimits(**json.loads(sys.argv[2]))
    limit_this_process(limits)
    os.nice(_NICENESS)
    title, text = read(
        sys.stdin.buffer.read(), url=arguments["url"], charset=arguments["charset"], limits=limits
    )
    said = json.dumps({"title": title, "text": text}, ensure_ascii=False)
    sys.stdout.buffer.write(said.encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
