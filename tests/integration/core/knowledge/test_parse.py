"""What is read out of a good file of each format."""

from core.knowledge.parsing.pdf import find_tesseract_data
from tests.support import made_files
from tests.support.made_files import parsed


async def test_text_in_a_scanned_page_is_recognised_where_tesseract_is_installed() -> None:
    document = await parsed(made_files.scanned_pdf(["Cover.", None]), "a.pdf")

    assert ("Invoice 2" in document.pages[1].text) == (find_tesseract_data() is not None)
