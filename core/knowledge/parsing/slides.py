"""Reads PowerPoint files: presentations, slide shows and templates, with or without macros, which are never run."""

from collections.abc import Iterator
from typing import Any

from core.knowledge.document import Document, Page, ParseLimits
from core.knowledge.parsing.blocks import (
    Block,
    Cell,
    build_slide_page,
    note_block,
    render_block,
    render_table,
    repeat_merged_cells,
)
from core.knowledge.parsing.office import OfficePackage, PartText, name_picture

_TITLES = ("title", "ctrTitle")
_UNSHOWN = ("sldNum", "sldImg", "hdr")


def read_pptx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a presentation, one page per slide in the order of the show, with charts, comments and speaker notes.
    Hidden slides are marked as hidden. Images are named."""
    package = OfficePackage(content, limits)
    main = package.main_part()
    show = PartText(package, main)
    slides = [
        show.relation_target(slide)
        for slide in package.read_cleaned_root(main, is_needed=True).iterfind("sldIdLst/sldId")
    ]
    limits.check(pages=len(slides))
    pages = [_read_slide(package, number, part) for number, part in enumerate(slides, start=1)]
    return package.build_document("pptx", pages)


def _read_slide(package: OfficePackage, number: int, part: str) -> Page:
    root, text = package.read_cleaned_root(part), PartText(package, part)
    shapes = [shape for tree in root.iterfind("cSld/spTree") for shape in tree]
    title = next((shape for shape in shapes if _placeholder(shape) in _TITLES and _shape_text(shape, text)), None)
    heading = " ".join(_shape_text(title, text).split()) if title is not None else ""
    blocks = [block for shape in shapes if shape is not title for block in _read_shape(shape, text, package)]
    for relation in package.relations(part).values():
        if relation.kind == "notesSlide":
            notes = PartText(package, relation.target)
            found = package.read_cleaned_root(relation.target).iter("sp")
            words = "\n".join(_shape_text(shape, notes) for shape in found if _placeholder(shape) == "body")
            blocks.append(note_block("speaker notes", words))
        elif relation.kind == "comments":
            comments = PartText(package, relation.target)
            found = package.read_cleaned_root(relation.target).iter("cm")
            blocks += (note_block("comment", one.findtext("text") or _shape_text(one, comments)) for one in found)
    return build_slide_page(number, heading, blocks, is_hidden=root.get("show") in ("0", "false"))


def _placeholder(shape: Any) -> str:
    """Returns the role of the shape on its slide, such as title."""
    found = shape.find("nvSpPr/nvPr/ph")
    return found.get("type", "body") if found is not None else ""


def _shape_text(shape: Any, text: PartText) -> str:
    lines, counts = list[str](), dict[int, int]()
    for paragraph in shape.iterfind("txBody/p"):
        properties, line = paragraph.find("pPr"), text.line(paragraph)
        level = int(properties.get("lvl", "0")) if properties is not None else 0
        numbering = properties.find("buAutoNum") if properties is not None else None
        marker = "-" if level or (properties is not None and properties.find("buChar") is not None) else ""
        counts = {at: count for at, count in counts.items() if at < level or (at == level and numbering is not None)}
        if numbering is not None:
            counts[level] = counts.get(level, int(numbering.get("startAt", "1")) - 1) + 1
            marker = f"{counts[level]}."
        lines.append(render_block(Block(line, "item", level, marker)) if marker and line else line)
    return "\n".join(lines).strip()


def _read_shape(shape: Any, text: PartText, package: OfficePackage) -> Iterator[Block]:
    named = shape.find("*/cNvPr")
    if shape.tag == "grpSp":
        for inner in shape:
            yield from _read_shape(inner, text, package)
    elif shape.tag == "pic":
        if shape.find("nvPicPr/nvPr/videoFile") is not None or shape.find("nvPicPr/nvPr/audioFile") is not None:
            package.left_out["recording"] += 1
        if named is not None:
            yield Block(name_picture(named))
        return
    elif shape.tag == "graphicFrame":
        for table in shape.iterfind("graphic/graphicData/tbl"):
            rows = list[list[Cell]]()
            for row in table.iterchildren("tr"):
                cells = (cell for cell in row.iterchildren("tc") if not {"hMerge", "vMerge"} & set(cell.keys()))
                spans = ((cell, int(cell.get("gridSpan", "1")), int(cell.get("rowSpan", "1"))) for cell in cells)
                rows.append([Cell("\n".join(map(text.line, cell.iter("p"))), *covered) for cell, *covered in spans])
            yield Block(render_table(repeat_merged_cells(rows)), "table")
        for graphic in shape.iter("chart", "relIds"):
            yield Block(text.graphic(graphic))
        package.left_out["embedded file"] += sum(1 for _ in shape.iter("oleObj"))
    elif shape.tag == "sp" and _placeholder(shape) not in _UNSHOWN:
        yield Block(_shape_text(shape, text))
    if named is not None and named.get("descr"):
        yield Block(f"[alternative text: {' '.join(named.get('descr').split())}]")
