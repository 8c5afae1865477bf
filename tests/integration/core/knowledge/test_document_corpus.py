"""Each file of the corpus in tests/fixtures/documents shows what its row in expected.yaml says."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.domain.errors import DocumentError
from core.knowledge.document import Document
from core.knowledge.parsing.parser_process import parse_output
from core.knowledge.parsing.pdf import find_tesseract_data
from tests.fixtures.documents.make import FOLDER, makers
from tests.paths import REPOSITORY
from tests.support import made_files
from tests.support.made_files import parsed

EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "expected.yaml").read_text("utf-8"))
SECONDS_MAX = 60


@cache
def outputs(kind: str) -> dict[str, bytes]:
    """What the parser writes for each file with the ending `kind`, read in one process."""
    names = [name for name in EXPECTED if Path(name).suffix == kind]
    command = [sys.executable, "-m", "tests.fixtures.documents.read_corpus", *names]
    environment = {"PYTHONPATH": str(REPOSITORY), "PYTHONUTF8": "1", "PATH": os.defpath}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr.decode()
    read, lines = dict[str, bytes](), list[bytes]()
    for line in done.stdout.splitlines(keepends=True):
        if line.startswith(b'{"file": '):
            read[names[len(read)]] = b"".join(lines)
            lines.clear()
        else:
            lines.append(line)
    return read


def shown_text(document: Document) -> str:
    pages = (f"[page {page.number or ''} {page.place}]\n{page.text}" for page in document.pages)
    return "\n".join((document.title, *pages))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_document_shows_what_it_says(name: str) -> None:
    row = EXPECTED[name]
    if "refused" in row:
        with pytest.raises(DocumentError) as refusal:
            parse_output(outputs(Path(name).suffix)[name])
        assert row["refused"] in str(refusal.value)
        return
    text = shown_text(parse_output(outputs(Path(name).suffix)[name]))
    assert [part for part in row.get("shows", ()) if str(part) not in text] == [], text[:3_000]
    assert [part for part in row.get("hides", ()) if str(part) in text] == [], text[:3_000]


def test_each_document_has_a_maker_and_a_row() -> None:
    files = {path.name for path in FOLDER.iterdir() if path.suffix not in (".py", ".yaml", "")}
    assert files == set(EXPECTED) == set(makers())


async def test_text_in_a_scanned_page_is_recognised_where_tesseract_is_installed() -> None:
    document = await parsed(made_files.scanned_pdf(["Cover.", None]), "a.pdf")

    assert ("Invoice 2" in document.pages[1].text) == (find_tesseract_data() is not None)
