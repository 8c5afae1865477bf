"""The catalogue: exact names and parameters, and one definition behind every dialect's schema."""

from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from core.dialects.dialect import CallComplete
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect, describe_tools, format_call
from core.domain.call_consent import Reach
from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.domain.sources import SourceKind
from core.ports import TextDelta
from core.tools.catalogue import all_tools, build_tool_set
from core.tools.tool import TITLE_CHARACTERS_MAX, ToolSet, prepare_call
from tests.support.narrow import require, require_type

# name: parameters, those that are required with a star, those with a default with it
PARAMETERS = {
    "ask": "text* attachments options",
    "complete": "text attachments",
    "web_browser_takeover": "text* attachments",
    "no_reply": "",
    "expand_message": "message_id* page=1",
    "execute_command": "command* folder session_name blocking timeout hosts",
    "check_command_output": "session_name* wait_seconds=0 until input kill_session",
    "terminate_command": "session_name*",
    "list_commands": "",
    "create_file": "file_path* file_contents* permissions=644",
    "full_file_rewrite": "file_path* file_contents* permissions",
    "str_replace": "file_path* old_str* new_str*",
    "delete_file": "file_path*",
    "read_file": "file_path* start_line=1 end_line page=1",
    "list_files": "path=.",
    "search_knowledge": "query*",
    "search_conversation": "query*",
    "web_search": "query* num_results=20 after before",
    "scrape_webpage": "urls*",
    "see_image": "file_path*",
    "deploy": "name* directory_path*",
    "expose_port": "port*",
    "python_execute": "code* timeout=5",
    "str_replace_editor": "command* path* file_text old_str new_str insert_line view_range",
    "get_data_provider_endpoints": "service_name*",
    "execute_data_provider_call": "service_name* route* payload",
    "image_edit_or_generate": "mode* prompt* image_path",
    "ask_document": "file_path* question*",
    "browser_navigate_to": "url*",
    "browser_go_back": "",
    "browser_wait": "seconds=3",
    "browser_switch_tab": "page_id*",
    "browser_close_tab": "page_id*",
    "browser_scroll_down": "amount",
    "browser_scroll_up": "amount",
    "browser_scroll_to_text": "text*",
    "browser_read_page": "start=0",
    "browser_extract_content": "goal*",
    "browser_screenshot": "file_path* full_page",
    "browser_click_element": "index*",
    "browser_click_coordinates": "x* y*",
    "browser_input_text": "index* text*",
    "browser_send_keys": "keys*",
    "browser_get_dropdown_options": "index*",
    "browser_select_dropdown_option": "index* text*",
    "browser_drag_drop": "element_source element_target coord_source_x coord_source_y coord_target_x coord_target_y",
    "browser_answer_dialog": "accept* text",
    "browser_upload_file": "file_path* index*",
    "browser_download": "index url",
}


def written(parameters: JsonObject) -> str:
    properties, required = parameters["properties"], parameters.get("required", [])
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    words: list[str] = []
    for name, schema in properties.items():
        assert isinstance(schema, dict)
        default = schema.get("default")
        shown = "" if default is None or default == [] or default == "" else f"={default}"
        words.append(f"{name}*" if name in required else f"{name}{shown}")
    return " ".join(words)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_tool_has_its_exact_parameters(name: str) -> None:
    assert written(all_tools()[name].build_spec().parameters) == PARAMETERS[name]


@pytest.mark.parametrize("name", sorted(all_tools()))
def test_a_tool_has_an_example_that_fits_it(name: str) -> None:
    tool = all_tools()[name]
    assert tool.example is not None
    prepared = prepare_call(name, tool.example, build_tool_set([]))
    assert 0 < len(prepared.title) <= TITLE_CHARACTERS_MAX


@pytest.mark.parametrize("name", sorted(all_tools()))
def test_a_tool_is_described_in_whole_sentences(name: str) -> None:
    spec = all_tools()[name].build_spec()
    assert spec.description.endswith(".")
    properties = require_type(spec.parameters["properties"], dict)
    for schema in properties.values():
        assert isinstance(schema, dict)
        # a name that says everything needs no description
        assert str(schema.get("description", ".")).endswith(".")


@pytest.mark.parametrize("name", sorted(all_tools()))
def test_an_example_comes_back_out_of_the_xml_it_is_shown_as(name: str) -> None:
    example = require(all_tools()[name].example)
    parser = XmlDialect().parser(build_tool_set(["knowledge"]).specs)
    text = format_call(name, example)
    parsed = [*parser.feed(TextDelta(text=text)), *parser.close(is_whole=True)]
    (complete,) = [one for one in parsed if isinstance(one, CallComplete)]
    assert (complete.call.name, complete.call.arguments) == (name, example)


def test_one_definition_gives_the_native_schema() -> None:
    spec = all_tools()["str_replace"].build_spec()
    ((schema,), prompt) = NativeDialect().request_parts([spec])
    assert prompt == ""
    function = require_type(schema["function"], dict)
    assert (function["name"], function["description"]) == ("str_replace", spec.description)
    assert function["parameters"] == snapshot(
        {
            "properties": {
                "file_path": {"description": "Path relative to /workspace.", "type": "string"},
                "old_str": {"description": "The text to replace.", "type": "string"},
                "new_str": {"description": "The text to put there.", "type": "string"},
            },
            "required": ["file_path", "old_str", "new_str"],
            "type": "object",
            "additionalProperties": False,
        }
    )


def test_one_definition_gives_the_xml_prompt() -> None:
    schemas, prompt = XmlDialect().request_parts([all_tools()["str_replace"].build_spec()])
    assert schemas == ()
    assert prompt[prompt.index("## ") :] == snapshot("""\
## str_replace
Replace one piece of a text file. old_str must be in the file exactly once, to the letter, with its spaces.
- file_path (string, required): Path relative to /workspace.
- old_str (string, required): The text to replace.
- new_str (string, required): The text to put there.
<function_calls>
<invoke name="str_replace">
<parameter name="file_path">src/main.py</parameter>
<parameter name="old_str">hello</parameter>
<parameter name="new_str">good morning</parameter>
</invoke>
</function_calls>\
""")
    assert prompt == describe_tools([all_tools()["str_replace"].build_spec()])


def test_without_a_sandbox_its_tools_are_left_out() -> None:
    left = set(build_tool_set(["sandbox"]).tools)
    assert {"ask", "complete", "web_browser_takeover", "no_reply"} <= left
    assert not left & {name for name in PARAMETERS if "file" in name or "command" in name}
    assert "str_replace" not in left


TITLES: list[tuple[str, JsonObject, str]] = [
    ("execute_command", {"command": "ls -l\nrm x"}, "Running `ls -l…`"),
    ("execute_command", {"command": "x" * 300}, f"Running `{'x' * 80}…`"),
    ("execute_command", {"command": "\n\n  make   all \n"}, "Running `make all`"),
    ("create_file", {"file_path": "/workspace/a/b.py", "file_contents": ""}, "Creating a/b.py"),
    ("list_files", {}, "Looking into the workspace"),
    ("list_files", {"path": "src"}, "Looking into src"),
    ("check_command_output", {"session_name": "build"}, "Looking at build"),
    ("check_command_output", {"session_name": "build", "input": "y"}, "Answering build"),
    ("ask", {"text": "x"}, "Asking a question"),
]


@pytest.mark.parametrize(("name", "arguments", "title"), TITLES)
def test_a_title_is_one_readable_line(name: str, arguments: JsonObject, title: str) -> None:
    assert prepare_call(name, arguments, build_tool_set()).title == title


def test_tools_of_servers_come_last_in_one_order_whatever_order_they_come_in() -> None:
    own = build_tool_set()
    names = list(own.tools)
    made = {name: replace(own.tools["ask"], name=name) for name in ("b_tool", "a_tool", "c_tool")}
    one = own.with_tools([made["b_tool"], made["c_tool"]])
    both = one.with_tools([made["a_tool"]])
    again = own.with_tools([made["c_tool"], made["b_tool"]])
    assert list(one.tools) == list(again.tools) == [*names, "b_tool", "c_tool"]
    assert list(both.tools)[: len(names)] == names


def test_only_what_changes_nothing_is_declared_as_a_read() -> None:
    reads = sorted(one.name for one in all_tools().values() if one.effect == "reads")
    assert reads == snapshot(
        [
            "ask_document",
            "browser_extract_content",
            "browser_get_dropdown_options",
            "browser_read_page",
            "execute_data_provider_call",
            "expand_message",
            "get_data_provider_endpoints",
            "list_commands",
            "list_files",
            "list_schedules",
            "read_file",
            "scrape_webpage",
            "search_conversation",
            "search_knowledge",
            "see_image",
            "web_search",
        ]
    )


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("execute_command", {"command": "rm -rf build", "workdir": "app"}, {"folder": "app"}),
        ("execute_command", {"cmd": "ls", "cwd": "app"}, {"command": "ls", "folder": "app"}),
        ("execute_command", {"command": "ls", "description": None}, {"command": "ls"}),
        ("complete", {"message": "Done."}, {"text": "Done."}),
        ("ask", {"question": "Which?", "choices": ["a"]}, {"text": "Which?", "options": ["a"]}),
        ("read_file", {"path": "a", "offset": 5, "limit": 3}, {"start_line": 5, "end_line": 7}),
        ("read_file", {"filePath": "a", "limit": "3"}, {"start_line": 1, "end_line": 3}),
        ("create_file", {"path": "a", "content": {"b": 1}}, {"file_contents": '{"b": 1}'}),
        ("create_file", {"file": "a", "content": ["x", "y"]}, {"file_contents": "x\ny"}),
        ("str_replace", {"file_path": "a", "old_string": "1", "new_string": 2}, {"old_str": "1", "new_str": "2"}),
        (
            "scrape_webpage",
            {"urls": ["https://a.example", "https://b.example"]},
            {"urls": "https://a.example\nhttps://b.example"},
        ),
        ("scrape_webpage", {"url": "https://a.example"}, {"urls": "https://a.example"}),
        ("no_reply", {"reason": "not for me"}, {}),
    ],
)
def test_arguments_under_other_names_are_understood(name: str, given: JsonObject, read: JsonObject) -> None:
    params = prepare_call(name, given, ToolSet(all_tools())).params.model_dump(mode="json")
    assert {key: params[key] for key in read} == read


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("execute_command", {"command": "rm -rf build", "host": "other"}),
        ("execute_command", {"command": "ls", "folder": "a", "cwd": "b"}),
        ("read_file", {"file_path": "a", "limit": "many"}),
        ("complete", {"text": "Done.", "status": "ok"}),
    ],
)
def test_an_argument_that_nobody_knows_is_refused_with_those_that_there_are(name: str, given: JsonObject) -> None:
    with pytest.raises(ToolError, match=f"{name} has no parameter '.*Its parameters are: "):
        prepare_call(name, given, ToolSet(all_tools()))


BROUGHT: dict[str, SourceKind] = {
    "scrape_webpage": "page",
    "web_search": "search",
    "read_chat": "chat",
    "search_knowledge": "document",
}


@pytest.mark.parametrize("name", sorted(BROUGHT))
def test_tools_that_bring_text_from_outside_say_so(name: str) -> None:
    tool = all_tools()[name]
    reach = tool.reach if isinstance(tool.reach, Reach) else tool.reach(tool.params.model_validate(tool.example))
    assert {kind for kind, _ in reach.brings} == {BROUGHT[name]}
