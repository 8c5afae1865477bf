"""Reads CSV and TSV files."""

import csv
import io
import re
from collections import Counter
from itertools import islice

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.blocks import render_table
from core.knowledge.parsing.encodings import detect_encoding

_DELIMITERS = "\t;|,"
"""The delimiters in order of preference: if several divide the rows equally well, the first counts. The comma comes
last, because commas also occur in numbers and sentences."""
_DELIMITER_LINE = re.compile(r"""(?i)"?sep=(.)"?[\r\n]""")
_CELL_CHARACTERS_MAX = 1_000_000
_SAMPLE_CHARACTERS = 20_000
_SAMPLE_ROWS = 200
_TITLE_ROWS_MAX = 20
_NOTE_CHARACTERS = 200
_ROW_CHARACTERS, _CELL_CHARACTERS = 2, 3
"""The number of characters that a table adds to each row and each cell."""


def read_separated(content: bytes, limits: ParseLimits, kind: DocumentKind) -> Document:
    """Reads a CSV or TSV file as one table, whose title lines come first. Detects the delimiter of a CSV file.

    If the file is too large, reads only the first rows, and adds a page with a note."""
    csv.field_size_limit(_CELL_CHARACTERS_MAX)
    encoding, mark = detect_encoding(content)
    text = io.TextIOWrapper(io.BytesIO(content[len(mark) :]), encoding, "replace", newline="")
    sample = text.read(_SAMPLE_CHARACTERS)
    text.seek(0)
    if written := _DELIMITER_LINE.match(sample):
        text.readline()
    candidates = written[1] if written else "\t" if kind == "tsv" else _DELIMITERS
    counts = dict[str, int]()  # how many of the first rows have the most frequent number of cells above one
    for candidate in candidates:
        lines = csv.reader(io.StringIO(sample, newline=""), delimiter=candidate, skipinitialspace=True)
        widths = Counter(len(row) for row in islice(lines, _SAMPLE_ROWS) if len(row) > 1)
        counts[candidate] = max(widths.values(), default=0)
    delimiter = max(counts, key=counts.__getitem__) if len(counts) == 1 or any(counts.values()) else ","
    rows, width, characters, is_whole = list[list[str]](), 0, _NOTE_CHARACTERS, True
    try:
        for row in csv.reader(text, delimiter=delimiter, skipinitialspace=True):
            # all rows of the table are equally wide
            width, joined = max(width, len(row)), "".join(row)
            characters += len(joined) + joined.count("|") + _ROW_CHARACTERS
            cells = width * (len(rows) + 3)  # 3: this row, and twice the line below the header, with its longer cells
            if cells > limits.cells_max or characters + cells * _CELL_CHARACTERS > limits.text_characters_max:
                is_whole = False
                break
            rows.append(row)
    except csv.Error as error:
        raise Unreadable("broken") from error
    if not rows and not is_whole:
        raise Unreadable("cells", str(limits.cells_max))
    if is_whole and len(content) >= limits.file_bytes_max:
        rows, is_whole = rows[:-1], False  # the last row may be incomplete
    # the lines above the header have one cell each, apart from empty cells that a spreadsheet program adds
    header = next((at for at, row in enumerate(rows[:_TITLE_ROWS_MAX]) if sum(map(bool, row)) > 1), 0)
    titles = "\n".join(cell for row in rows[:header] for cell in row if cell)
    note = f"[Only the first {len(rows):,} rows are read; the file goes on. A program can go through all of it.]"
    pages = [Page(None, "Left out", note)] * (not is_whole) + [Page(None, "Above the table", titles)] * bool(titles)
    return Document(title="", kind=kind, pages=(*pages, Page(None, "", render_table(rows[header:]))))
