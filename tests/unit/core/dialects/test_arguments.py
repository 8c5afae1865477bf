"""What is done with the arguments of a native call that are not quite JSON."""

import time

import pytest

from core.dialects.arguments import parse_arguments


def test_strings_with_escapes_are_mended_around() -> None:
    text = '{"content": "say \\"hi\\", [ok]\\\\",\n "more": "two\nlines", }'
    assert parse_arguments(text) == {"content": 'say "hi", [ok]\\', "more": "two\nlines"}


@pytest.mark.parametrize("end", ["", "\\", '\\"'])
def test_a_string_without_an_end_is_never_mended(end: str) -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_arguments('{"path": "a.html", "content": "half of a \\"file\\"' + end)


@pytest.mark.parametrize(
    "text",
    [
        # a quarter of it took ten seconds when each quote inside was tried as a beginning
        '{"content": "' + '<a href=\\"x\\" class=\\"y\\">' * 30_000,
        '{"a": 1}' * 100_000,
        '{"a": 1}' + "</tool_call>" * 100_000,
    ],
    ids=["no end", "repeated", "tokens at the end"],
)
def test_a_long_text_is_refused_in_linear_time(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_arguments(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        '{"text": "abc"}{"text": "abc"}',
        '{"text": "abc"}' * 5,
        '{"text":"abc"}{"text": "abc"}',
        '{"text": "abc"}\n{"text": "abc"}\n',
        '{"text": "abc"}"}',
        '{"text": "abc"}}',
        '{"text": "abc"}"{\\"text\\": \\"abc\\"}"',
    ],
)
def test_an_object_that_is_said_again_counts_once(text: str) -> None:
    assert parse_arguments(text) == {"text": "abc"}


@pytest.mark.parametrize("rest", ['{"text": "b"}', " and more", '"b"', "[]", '{"text": "a"', "{}" * 100_000])
def test_what_follows_an_object_and_is_another_thing_is_not_passed_over(rest: str) -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_arguments('{"text": "a"}' + rest)


@pytest.mark.parametrize(
    "text",
    [
        '{"text": "abc"}</tool_call>',
        '{"text": "abc"}\n</tool_call>\n<|im_end|>',
        '{"text": "abc"}<｜tool▁call▁end｜>',
        "{'text': 'abc'}",
        "{'text': \"abc\",}",
    ],
)
def test_tokens_of_a_chat_template_and_python_are_read(text: str) -> None:
    assert parse_arguments(text) == {"text": "abc"}


@pytest.mark.parametrize("text", ["{1, 2}", "{'a': print('b')}", "{'a': b}", "{" * 50_000])
def test_what_is_no_dictionary_of_python_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_arguments(text)
