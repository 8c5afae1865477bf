"""What is read out of a good file of each format."""

from core.knowledge.document import UNREADABLE_PAGE, Page
from core.knowledge.parsing.pdf import find_tesseract_data
from tests.support import made_files
from tests.support.made_files import parsed


async def test_a_pdf_keeps_its_page_numbers() -> None:
    document = await parsed(made_files.pdf(["First page.", "", "Third\npage."]), "a.pdf")

    assert document.kind == "pdf"
    assert [(page.number, page.text.split()) for page in document.pages] == [
        (1, ["First", "page."]),
        (2, UNREADABLE_PAGE.split()),
        (3, ["Third", "page."]),
    ]


async def test_a_word_file_is_divided_at_its_headings_and_its_tables_become_markdown() -> None:
    document = await parsed(made_files.word(), "handbook.docx")

    assert (document.kind, document.title) == ("docx", "Handbook")
    assert document.pages == (
        Page(
            None,
            "Holidays",
            "# Holidays\n\nEverybody has thirty days a year.\n\n"
            "| Country | Days |\n| --- | --- |\n| Norway \\| Oslo | 25 |",
        ),
        Page(None, "Travel", "## Travel\n\nTrains before planes."),
    )


async def test_slides_are_pages_with_their_title_table_and_notes() -> None:
    document = await parsed(made_files.slides(), "talk.pptx")

    assert document.pages == (
        Page(
            2, "Results", "# Results\n\nSales doubled.\n\n| Q1 | 17 |\n| --- | --- |\n\n[speaker notes: Say it slowly.]"
        ),
    )


async def test_sheets_are_places_and_their_values_a_table() -> None:
    document = await parsed(made_files.sheets(), "prices.xlsx")

    assert document.pages == (
        Page(None, "Prices", "| Item | Price |\n| --- | --- |\n| Bolt | 2.5 |\n| Nut | 3 |"),
        Page(None, "数据", "| 苹果 | TRUE |\n| --- | --- |"),
    )


async def test_each_part_of_a_very_long_table_has_its_header() -> None:
    rows = [f"{number},some words" for number in range(10_000)]
    document = await parsed("\n".join(["id,note", *rows]).encode(), "a.csv")

    head = "| id | note |\n| --- | --- |\n"
    assert all(page.text.startswith(head) for page in document.pages)
    told = "\n".join(page.text.removeprefix(head) for page in document.pages)
    assert told == "\n".join(f"| {number} | some words |" for number in range(10_000))


async def test_text_in_a_scanned_page_is_recognised_where_tesseract_is_installed() -> None:
    document = await parsed(made_files.scanned_pdf(["Cover.", None]), "a.pdf")

    assert ("Invoice 2" in document.pages[1].text) == (find_tesseract_data() is not None)
