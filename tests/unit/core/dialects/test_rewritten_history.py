"""Native calls in the history of a model that writes its calls as text."""

from core.dialects.selection import write_calls_as_text
from core.domain.json import JsonObject
from core.ports import ModelRequest

CALL: JsonObject = {
    "role": "assistant",
    "content": "Let me see.",
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "read_file", "arguments": '{"file_path": "a", "start_line": 2}'},
        },
        {"id": "c2", "type": "function", "function": {"name": "list_files", "arguments": "{oops"}},
    ],
}
RESULT: JsonObject = {"role": "tool", "tool_call_id": "c1", "name": "read_file", "content": "{}"}
REQUEST = ModelRequest(model="m", messages=({"role": "user", "content": "hi"}, CALL, RESULT))


def test_a_native_model_is_sent_what_is_stored() -> None:
    assert write_calls_as_text(REQUEST, "native") is REQUEST


def test_in_xml_the_calls_are_text_and_the_results_a_users() -> None:
    said, call, result = write_calls_as_text(REQUEST, "xml").messages
    assert said == {"role": "user", "content": "hi"}
    assert call == {
        "role": "assistant",
        "content": "Let me see.\n"
        '<function_calls>\n<invoke name="read_file">\n<parameter name="file_path">a</parameter>\n'
        '<parameter name="start_line">2</parameter>\n</invoke>\n</function_calls>\n'
        '<function_calls>\n<invoke name="list_files">\n</invoke>\n</function_calls>',
    }
    assert result == {"role": "user", "content": "{}"}


def test_in_react_they_are_labelled_lines() -> None:
    call = write_calls_as_text(REQUEST, "react").messages[1]
    assert call["content"] == (
        "Let me see.\n"
        'Action: read_file\nAction Input: {"file_path": "a", "start_line": 2}\n'
        "Action: list_files\nAction Input: {}"
    )


def test_what_is_text_already_stays_as_it_is() -> None:
    text: JsonObject = {"role": "assistant", "content": "<function_calls>", "tool_calls": None}
    request = ModelRequest(model="m", messages=(text,))
    assert write_calls_as_text(request, "xml").messages == (text,)
