"""What reading the XML dialect costs."""

import time
from statistics import median

from core.dialects.dialect import CallComplete, ParsedPart, ToolSpec
from core.dialects.xml import XmlDialect
from core.ports import TextDelta
from tests.bench.figure import Figure, note

CHARACTERS = 200_000
CHUNK_CHARACTERS = 4
TIMES = 7
TOOL = ToolSpec(
    name="create_file",
    description="Creates a file.",
    parameters={"type": "object", "properties": {"file_path": {"type": "string"}, "file_contents": {"type": "string"}}},
    example={"file_path": "a.html", "file_contents": "x"},
)
LINE = '  <li class="row">one < two &amp; `three`, <a href="#4">four</a></li>\n'


async def xml_200kb_ms() -> float:
    """CPU from the first piece to the end of the answer: one call that writes a page, in pieces of 4 characters."""
    page = (LINE * (CHARACTERS // len(LINE) + 1))[:CHARACTERS]
    text = (
        'I write it.\n<function_calls>\n<invoke name="create_file">\n<parameter name="file_path">a.html</parameter>\n'
        f'<parameter name="file_contents">{page}</parameter>\n</invoke>\n</function_calls>'
    )
    deltas = [TextDelta(text=text[at : at + CHUNK_CHARACTERS]) for at in range(0, len(text), CHUNK_CHARACTERS)]
    costs = sorted(_cost_ms(deltas, page) for _ in range(TIMES))
    note(f"xml_200kb_ms: {' '.join(f'{one:.0f}' for one in costs)} for {len(deltas)} pieces")
    return median(costs)


def _cost_ms(deltas: list[TextDelta], page: str) -> float:
    parser = XmlDialect().parser({TOOL.name: TOOL})
    parsed: list[ParsedPart] = []
    started = time.process_time()
    for delta in deltas:
        parsed.extend(parser.feed(delta))
    parsed.extend(parser.close(is_whole=True))
    spent = time.process_time() - started
    (call,) = [one.call for one in parsed if isinstance(one, CallComplete)]
    assert call.arguments == {"file_path": "a.html", "file_contents": page}
    return spent * 1000


XML = Figure(name="xml_200kb_ms", unit="ms", bound=150, measure=xml_200kb_ms)
