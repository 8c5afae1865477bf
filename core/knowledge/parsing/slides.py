"""Reads PowerPoint files (pptx)."""

import io
from collections.abc import Iterable, Iterator

from pptx import Presentation
from pptx.shapes.base import BaseShape
from pptx.shapes.graphfrm import GraphicFrame
from pptx.shapes.group import GroupShape
from pptx.slide import Slide

from core.knowledge.document import Document, Page, ParseLimits, Unreadable
from core.knowledge.parsing.shared import check_package, markdown_table

_GROUP_DEPTH_MAX = 20


def read_pptx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a presentation, one page per slide, including speaker notes."""
    check_package(content, limits)
    opened = Presentation(io.BytesIO(content))
    if len(opened.slides) > limits.pages_max:
        raise Unreadable("pages", str(len(opened.slides)))
    pages = [_page(number, slide) for number, slide in enumerate(opened.slides, start=1)]
    return Document(
        title=opened.core_properties.title or "",
        kind="pptx",
        pages=tuple(page for page in pages if page.text.strip()),
    )


def _page(number: int, slide: Slide) -> Page:
    title = slide.shapes.title
    heading = " ".join(title.text_frame.text.split()) if title is not None else ""
    blocks = [f"# {heading}"] if heading else []
    blocks += [
        text
        for shape in slide.shapes
        if title is None or shape.shape_id != title.shape_id
        for text in _texts(shape, 0)
    ]
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        blocks.append(slide.notes_slide.notes_text_frame.text)
    return Page(number, heading, "\n\n".join(block for block in blocks if block.strip()))


def _texts(shape: BaseShape, depth: int) -> Iterator[str]:
    if depth > _GROUP_DEPTH_MAX:
        raise Unreadable("nested")
    if isinstance(shape, GroupShape):
        for one in _shapes(shape):
            yield from _texts(one, depth + 1)
    elif isinstance(shape, GraphicFrame) and shape.has_table:
        yield markdown_table([cell.text for cell in row.cells] for row in shape.table.rows)
    elif shape.has_text_frame:
        frame: object = getattr(shape, "text_frame", None)
        yield str(getattr(frame, "text", ""))


def _shapes(group: GroupShape) -> Iterable[BaseShape]:
    return iter(group.shapes)
