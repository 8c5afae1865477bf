"""What is read out of shapes that are not simply text boxes of a slide."""

import io
from typing import Any

import pptx
import pytest
from pptx.oxml import parse_xml
from pptx.oxml.xmlchemy import OxmlElement

from core.knowledge.document import ParseLimits
from core.knowledge.parsing.slides import read_pptx

NAMESPACES = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)


def shape(text: str) -> str:
    return (
        f"<p:sp {NAMESPACES}><p:nvSpPr><p:cNvPr id='9' name='x'/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/>"
        f"<p:txBody><a:bodyPr/><a:p>{text}</a:p></p:txBody></p:sp>"
    )


@pytest.fixture
def slide() -> Any:
    made = pptx.Presentation()
    return made.slides.add_slide(made.slide_layouts[5])


def read(slide: Any) -> list[str]:
    made = io.BytesIO()
    slide.part.package.save(made)
    return read_pptx(made.getvalue(), ParseLimits()).pages[0].text.split("\n\n")


def test_a_shape_with_the_number_of_the_title_is_read(slide: Any) -> None:
    slide.shapes.title.text = "Results"
    box = slide.shapes.add_textbox(0, 0, 9, 9)
    box.text_frame.text = "Sales doubled."
    box._element.nvSpPr.cNvPr.set("id", str(slide.shapes.title.shape_id))

    assert read(slide) == ["# Results", "Sales doubled."]


@pytest.mark.parametrize("is_grouped", [False, True])
def test_a_shape_with_an_equation_is_read_once(slide: Any, is_grouped: bool) -> None:
    slide.shapes.title.text = "Energy"
    equation = (
        "<a:r><a:t>E=</a:t></a:r><a14:m><m:oMath><m:sSup><m:e><m:r><m:t>mc</m:t></m:r></m:e>"
        "<m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></a14:m>"
    )
    both = (
        f"<mc:AlternateContent {NAMESPACES}><mc:Choice Requires='a14'>{shape(equation)}</mc:Choice>"
        f"<mc:Fallback>{shape('<a:r><a:t> </a:t></a:r>')}</mc:Fallback></mc:AlternateContent>"
    )
    place = slide.shapes.add_group_shape().shapes if is_grouped else slide.shapes
    place._spTree.append(parse_xml(both))

    assert read(slide) == ["# Energy", "E=mc^(2)"]


def test_lines_and_fields_of_a_shape_are_read(slide: Any) -> None:
    slide.shapes.title.text = "Lines"
    tabs = "<a:pPr><a:tabLst><a:tab/></a:tabLst></a:pPr>"
    text = f"{tabs}<a:r><a:t>one</a:t></a:r><a:br/><a:fld id='x' type='d'><a:t>two</a:t></a:fld>"
    slide.shapes._spTree.append(parse_xml(shape(text)))

    assert read(slide) == ["# Lines", "one\ntwo"]


def test_a_table_or_picture_in_the_place_of_the_title_hides_nothing(slide: Any) -> None:
    table = slide.shapes.add_table(1, 1, 0, 0, 9, 9)
    table.table.cell(0, 0).text = "17"
    slide.shapes.title._element.getparent().remove(slide.shapes.title._element)
    table._element.find(".//{*}nvPr").append(OxmlElement("p:ph"))

    assert read(slide) == ["| 17 |\n| --- |"]
