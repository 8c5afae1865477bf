"""Reads PowerPoint files: presentations, slide shows and templates, with or without macros, which are never run."""

import io
from collections.abc import Iterator
from typing import Any

from pptx.opc.package import PartFactory
from pptx.package import Package
from pptx.parts.presentation import PresentationPart
from pptx.shapes.base import BaseShape
from pptx.shapes.graphfrm import GraphicFrame
from pptx.shapes.group import GroupShape
from pptx.shapes.picture import Picture
from pptx.slide import Slide

from core.knowledge.document import Document, Page, ParseLimits, Unreadable
from core.knowledge.parsing.shared import check_package, markdown_table, office_text, unwrap_content

# python-pptx knows slide shows and templates only without macros
for _kind in ("slideshow", "template"):
    _content_type = f"application/vnd.ms-powerpoint.{_kind}.macroEnabled.main+xml"
    PartFactory.part_type_for[_content_type] = PresentationPart


def read_pptx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a presentation, one page per slide, including charts and speaker notes. Names pictures."""
    check_package(content, limits)
    opened = Package.open(io.BytesIO(content)).main_document_part.presentation
    if len(opened.slides) > limits.pages_max:
        raise Unreadable("pages", str(len(opened.slides)))
    pages = [_page(number, slide) for number, slide in enumerate(opened.slides, start=1)]
    return Document(
        title=opened.core_properties.title or "", kind="pptx", pages=tuple(page for page in pages if page.text.strip())
    )


def _page(number: int, slide: Slide) -> Page:
    unwrap_content(slide.element)
    title = slide.shapes.title
    if title is not None and not title.has_text_frame:
        title = None
    heading = " ".join(office_text(title.element).split()) if title is not None else ""
    blocks = [f"# {heading}"] if heading else []
    blocks += [
        text for shape in slide.shapes if title is None or shape.element is not title.element for text in _texts(shape)
    ]
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        blocks.append(slide.notes_slide.notes_text_frame.text)
    return Page(number, heading, "\n\n".join(block for block in blocks if block.strip()))


def _texts(shape: BaseShape) -> Iterator[str]:
    if isinstance(shape, GroupShape):
        for one in shape.shapes:
            yield from _texts(one)
    elif isinstance(shape, GraphicFrame):
        yield _graphic(shape)
    elif isinstance(shape, Picture):
        # python-pptx has no property for the alternative text
        element: Any = shape.element
        name = str(element.nvPicPr.cNvPr.get("descr") or shape.name)
        yield f"[picture: {' '.join(name.split())}]"
    elif shape.has_text_frame:
        yield office_text(shape.element).strip()


def _graphic(frame: GraphicFrame) -> str:
    if frame.has_table:
        table: Any = frame.element  # the library's rows take quadratic time
        rows = ([office_text(cell) for cell in row.iter("{*}tc")] for row in table.iter("{*}tr"))
        return markdown_table(rows)
    return _chart_table(frame) if frame.has_chart else f"[not shown here: {frame.name}]"


def _chart_table(frame: GraphicFrame) -> str:
    """Returns the chart's figures as a table: a row for each category, a column for each series."""
    try:
        chart: Any = frame.chart
        title = chart.chart_title.text_frame.text if chart.has_title else ""
        tables = [_plot_table(plot) for plot in chart.plots]
        return "\n\n".join((f"[chart: {' '.join((title or frame.name).split())}]", *tables))
    except (KeyError, ValueError, TypeError, AttributeError, NotImplementedError):
        # a chart of an unknown kind must not hide the rest of the presentation
        return f"[chart that cannot be read: {frame.name}]"


def _plot_table(plot: Any) -> str:
    columns: list[list[object]] = [list(one.values) for one in plot.series]
    names = list(map(str, plot.categories)) or [str(at) for at in range(1, 1 + max(map(len, columns)))]
    rows = [["", *(one.name or "" for one in plot.series)]]
    for at, name in enumerate(names):
        held = (values[at] if at < len(values) else None for values in columns)
        rows.append([name, *("" if one is None else f"{one:.15g}" for one in held)])
    return markdown_table(rows)
