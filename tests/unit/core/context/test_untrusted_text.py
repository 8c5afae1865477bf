"""Cleaning of text that others wrote."""

import pytest

from core.context.untrusted_text import clean_description
from core.mcp.schema_cleaning import clean_schema


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("One.\r\n\r\n\r\n\r\n- a\n    b\u200b \n", "One.\n\n- a\n    b"),
        ("A first sentence. A second", "A first sentence. [9 more characters are left out]"),
        ("a" * 30, "aaaaaaaaaaaaaaaaaaaa [10 more characters are left out]"),
        ("b" * 200, "bbbbbbbbbbbbbbbbbbbb [180 more characters are left out]"),
    ],
)
def test_a_description_keeps_its_lines_and_ends_after_a_sentence(text: str, cleaned: str) -> None:
    assert clean_description(text, 20) == cleaned


def test_the_description_of_a_parameter_keeps_its_lines_too() -> None:
    lines = "One of:\n- a: the first\n- b: the second"
    schema = {"properties": {"kind": {"type": "string", "description": lines}}}
    assert clean_schema(schema)["properties"] == schema["properties"]
