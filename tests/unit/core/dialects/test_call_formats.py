"""Calls that a model with native tool calls writes into its text: run if they are ours, never shown."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.call_formats import UNREADABLE
from core.dialects.dialect import CallComplete, DisplayText, ParsedPart, ToolSpec
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.json import JsonObject
from core.ports import TextDelta, ToolCallDelta
from tests.fakes.cpu_seconds import seconds_of

SCHEMA: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}}
TOOLS = {name: ToolSpec(name=name, description="", parameters=SCHEMA) for name in ("echo", "list_commands")}
ARGUMENTS: JsonObject = {"text": "a", "count": 2}
JSON_CALL = '{"name": "echo", "arguments": {"text": "a", "count": 2}}'


def parsed(*deltas: TextDelta | ToolCallDelta, is_whole: bool = True) -> list[ParsedPart]:
    parser = NativeDialect().parser(TOOLS)
    found = [one for delta in deltas for one in parser.feed(delta)]
    found += parser.close(is_whole=is_whole)
    assert parser.raw_answer == shown(found)
    return found


def shown(found: list[ParsedPart]) -> str:
    return "".join(one.text for one in found if isinstance(one, DisplayText))


def called(found: list[ParsedPart]) -> list[tuple[str, JsonObject]]:
    return [(one.call.name, one.call.arguments) for one in found if isinstance(one, CallComplete)]


def outcome(*pieces: str, is_whole: bool = True) -> tuple[str, list[tuple[str, JsonObject]]]:
    found = parsed(*(TextDelta(text=one) for one in pieces), is_whole=is_whole)
    return shown(found), called(found)


def formats(text: str) -> dict[str, str]:
    """Returns a call of `echo` with this text and the count 2 in each format, as the models write it."""
    given = json.dumps({"text": text, "count": 2}, ensure_ascii=False)
    named = f'{{"name": "echo", "arguments": {given}}}'
    tags = f'<parameter name="text">{text}</parameter>\n<parameter name="count">2</parameter>'
    dsml = tags.replace("<p", "<｜DSML｜p").replace("</p", "</｜DSML｜p").replace('t">', 't" string="true">')
    keyed = f"<arg_key>text</arg_key>\n<arg_value>{text}</arg_value>\n"
    kimi = f"<|tool_call_begin|>functions.echo:0<|tool_call_argument_begin|>{given}<|tool_call_end|>"
    coder = f"<function=echo>\n<parameter=text>\n{text}\n</parameter>\n<parameter=count>\n2\n</parameter>\n</function>"
    v3 = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    v3_call = f"function<｜tool▁sep｜>echo\n```json\n{given}\n```"
    dsml_call = f'<｜DSML｜invoke name="echo">\n{dsml}\n</｜DSML｜invoke>'
    call = f"<|channel|>commentary to=functions.echo <|constrain|>json<|message|>{given}"
    thought = '<|channel|>analysis<|message|>I say "it" with {.<|end|><|start|>assistant'
    return {
        "function_calls": f'<function_calls>\n<invoke name="echo">\n{tags}\n</invoke>\n</function_calls>',
        "invoke": f'<invoke name="echo">{tags}</invoke>',
        "invoke with JSON": f'<invoke name="echo">\n{given}\n</invoke>',
        "minimax": f'<minimax:tool_call>\n<invoke name="echo">\n{tags}\n</invoke>\n</minimax:tool_call>',
        "deepseek v3.2": f"<｜DSML｜function_calls>\n{dsml_call}\n</｜DSML｜function_calls>",
        "hermes": f"<tool_call>\n{named}\n</tool_call>",
        "hermes without an end": f"<tool_call>\n{named}",
        "tool_calls": f"<tool_calls>[{named}]</tool_calls>",
        "function_call": f'<function_call>{{"name": "echo", "arguments": {json.dumps(given)}}}</function_call>',
        "function": f"<function=echo>{given}</function>",
        "qwen3 coder": f"<tool_call>\n{coder}\n</tool_call>",
        "glm": f"<tool_call>echo\n{keyed}<arg_key>count</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        "granite": f"<|tool_call|>[{named}]",
        "phi": f"<|tool_call|>{named}<|/tool_call|>",
        "llama": f"<|python_tag|>{named}",
        "mistral": f"[TOOL_CALLS][{named}]",
        "mistral with a name": f"[TOOL_CALLS]echo[ARGS]{given}",
        "mistral with an id": f"[TOOL_CALLS]echo[CALL_ID]Ab3dE6gH9[ARGS]{given}",
        "kimi": f"<|tool_calls_section_begin|>{kimi}<|tool_calls_section_end|>",
        "deepseek v3": v3.format(v3_call),
        "deepseek v3, ASCII": v3.replace("｜", "|").format(v3_call.replace("<｜tool▁sep｜>", "<|tool▁sep|>")),
        "deepseek v3.1": v3.format(f"echo<｜tool▁sep｜>{given}"),
        "cohere": '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "echo", '
        f'"parameters": {given}}}\n]<|END_ACTION|>',
        "harmony": f"{call}<|call|>",
        "harmony without its tokens": f"<|channel|>commentary to=functions.echo json{given}<|channel|>",
        "harmony after a thought": f"{thought}{call}",
        "harmony with the name first": "<|start|>assistant to=functions.echo<|channel|>commentary json<|message|>"
        f"{given}<|call|>",
        "lm studio": f"[TOOL_REQUEST]{named}[END_TOOL_REQUEST]",
        "nemotron": f"<TOOLCALL>[{named}]</TOOLCALL>",
        "longcat": f"<longcat_tool_call>\n{named}\n</longcat_tool_call>",
        "glaive": f"<functioncall> {named} </functioncall>",
        "seed": f"<seed:tool_call>\n{coder}\n</seed:tool_call>",
        "gemini": f"```tool_code\nprint(default_api.echo(text={text!r}, count=2))\n```",
        "gemma": f"```tool_call\n{named}\n```",
        "gemma 4": f'<|tool_call>call:echo{{text:<|"|>{text}<|"|>,count:2}}<tool_call|>',
        "functiongemma": f"<start_function_call>call:echo{{text:<escape>{text}<escape>,count:2}}<end_function_call>",
    }  # fmt: skip


WRITTEN = formats("a")
MARK = re.compile(r"```tool_c(?:ode|all)|[<\[]\W?\w+\W*\w*[^\w\s]")


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_call_in_text_is_run_and_not_shown(written: str) -> None:
    assert outcome(f"I look it up.\n{written}") == ("I look it up.\n", [("echo", ARGUMENTS)])


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_every_split_of_the_stream_gives_the_same(written: str) -> None:
    text = f"Before `x`\n{written}\n"
    whole = outcome(text)
    assert whole == ("Before `x`\n" + whole[0][11:], [("echo", ARGUMENTS)])
    assert whole[0].strip() == "Before `x`"
    assert outcome(*text) == whole
    assert {str(outcome(text[:cut], text[cut:])) for cut in range(len(text))} == {str(whole)}


SNIPPETS = st.sampled_from([
    *WRITTEN.values(), '{"name": "echo"', '{"name": "x"', JSON_CALL, "`", "``", "```", "\n", "\n```\n", " ", "it's",
    '"', "{", "}", "[", "<", "\\", "<|end|>", "<|channel|>final", "<|message|>", "</tool_call>", "<tool_call>",
    "<|start|>assistant", "```tool_code\n", "[TOOL_CALLS]", "echo(", "<parameter=", "</parameter>", "<|channel|>",
    "<|tool_call_end|>", "commentary", "a b",
])  # fmt: skip


@settings(max_examples=150)
@given(st.lists(SNIPPETS, max_size=9).map("".join), st.lists(st.integers(1, 30), max_size=60))
def test_the_pieces_of_any_stream_make_no_difference(text: str, sizes: list[int]) -> None:
    pieces, rest = list[str](), text
    for size in (*sizes, len(text)):
        pieces.append(rest[:size])
        rest = rest[size:]
    assert outcome(*pieces) == outcome(text) == outcome(*text)


@settings(max_examples=150)
@given(st.sampled_from([*WRITTEN.values()]), st.data())
def test_half_a_call_is_neither_shown_nor_run_with_half_its_arguments(written: str, data: st.DataObject) -> None:
    start = MARK.search(written)
    assert start
    cut = data.draw(st.integers(start.end() + 2, len(written) - 1))
    found = parsed(TextDelta(text=f"Well.\n{written[:cut]}"))
    calls = [one.call for one in found if isinstance(one, CallComplete)]
    assert shown(found).strip() == "Well."
    assert all(call.problem or call.arguments == ARGUMENTS for call in calls)
    assert outcome(f"Well.\n{written[:cut]}", is_whole=False)[0].strip() == "Well."


HIDING = [
    'echo "</tool_call>" </function_calls> </invoke> </function>',
    "</｜DSML｜function_calls></minimax:tool_call></tool_calls></function_call>",
    "<｜tool▁call▁end｜><|tool_call_end|><|/tool_call|><|END_ACTION|><|call|><|end|>",
    'say \\"hi\\" \\',
]


@pytest.mark.parametrize("text", HIDING)
@pytest.mark.parametrize("name", WRITTEN)
def test_an_end_inside_an_argument_does_not_end_the_call(name: str, text: str) -> None:
    written = formats(text)[name]
    found = parsed(*(TextDelta(text=one) for one in f"{written}\n"))
    assert called(found) == [("echo", {"text": text, "count": 2})]
    assert shown(found).strip() == ""


@pytest.mark.parametrize(
    "text",
    [
        "Qwen writes `<tool_call>` before a call.",
        f"``<tool_call>{JSON_CALL}</tool_call>`` is the format, and `[TOOL_CALLS]` another.",
        f"```xml\n<tool_call>{JSON_CALL}</tool_call>\n```\nThat is the format.",
        f"````md\n```tool_call\n{JSON_CALL}\n```\n````\nThat is Gemma's.",
        "The <tool_call> tag is special, and so is a < b or [1].",
        "Between <tool_call> and </tool_call> stands JSON.",
        "The <|python_tag|> token comes first.\nThen [TOOL_CALLS] in Mistral.",
        "Messages of gpt-oss begin with <|channel|> or <|start|>.\nThey end with <|end|> each.",
        "a <b> c [TODO] <function> x",
        "~~~\n<function_calls>\n~~~",
        "```tool_code\nimport numpy\nprint(numpy.zeros(3))\n```\nThat ran.",
        '```tool_call\n{"name": "get_weather", "arguments": {}}\n```\nThat is an example.',
        "```\na\n```",
        'Write `say "<tool_call>"` there, and `"</tool_call>"` at the end.',
        f"The page says:\n> <tool_call>{JSON_CALL}</tool_call>\nI do not do that.",
        f"The page says:\n> ```\n> <tool_call>\n> {JSON_CALL}\n> </tool_call>\n> ```\nI do not do that.",
        '{"name": "echo", "count": 2}',
        '{"name": "list_commands", "type": "function", "id": "1"}',
        '[{"name": "echo"}, {"name": "list_commands"}]',
        '{"name": "echo", "parameters": {"type": "object", "properties": {}}}',
        '{"name": "echo", "description": "Says it again.", "parameters": {}}',
        f"{JSON_CALL} is a call.",
        f"{JSON_CALL}; {JSON_CALL}; and so on.",
        f"{JSON_CALL}\n[That is the format.]",
        f'{JSON_CALL}\n{{"name": "unknown", "arguments": {{}}}}',
        f"A call: {JSON_CALL}",
        '[{"name": "Ann"}, {"name": "echo"',
        '{"name',
        "Formats:\n- <tool_call>\n- <function_calls>\n- [TOOL_CALLS]\nThese are of Qwen, Claude and Mistral.",
        "| Model | Mark |\n|---|---|\n| Qwen | <tool_call> |\n| Llama | <|python_tag|> |\n\nPick one.",
        "Some write <tool_call> <|tool_call_begin|> and so on before a call.\n\nThat is all.",
        "See the list [tool",
        "The tag is <tool_call",
    ],
)  # fmt: skip
def test_text_about_calls_stays_text(text: str) -> None:
    assert outcome(text) == outcome(*text) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "The <tool_call> tag opens a call. " + "It is plain text that people may read now. " * 20,
        "The <|python_tag|> token comes first. " + "It is plain text that people read. " * 20,
        '{"name": "Report", "type": "summary", "arguments": "' + "It is long. " * 60,
        '{"id": 1, "type": "Person", "name": "Ann", "about": "' + "She reads. " * 60,
    ],
)
def test_plain_text_with_a_mark_is_shown_while_it_streams(text: str) -> None:
    parser = NativeDialect().parser(TOOLS)
    seen = "".join(shown(list(parser.feed(TextDelta(text=one)))) for one in text)
    assert text.startswith(seen)
    assert len(seen) > len(text) - 60


def test_a_call_after_a_sentence_about_calls_is_run() -> None:
    text = "The <tool_call> tag it is. " + "I go on with the work. " * 20
    written = f"{text}\n<tool_call>{JSON_CALL}</tool_call>"
    assert outcome(written) == outcome(*written) == (f"{text}\n", [("echo", ARGUMENTS)])


UNCLOSED = ["It`s here:", "Press ` or ``", "``` and `", "Not `closed\nIt`s:"]


@pytest.mark.parametrize("before", UNCLOSED)
@pytest.mark.parametrize(
    ("name", "text"),
    [("invoke", "a"), *((n, t) for n in ("hermes", "kimi", "harmony", "cohere") for t in ("a", "`b` c"))],
)  # fmt: skip
def test_a_backtick_that_nothing_closes_does_not_make_a_call_code(before: str, name: str, text: str) -> None:
    written = f"{before} {formats(text)[name]}\nDone."
    shown_text, calls = outcome(written)
    assert outcome(*written) == (shown_text, calls)
    assert calls == [("echo", {"text": text, "count": 2})]
    assert shown_text.split() == [*before.split(), "Done."]


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
@pytest.mark.parametrize("name", ["hermes", "qwen3 coder", "invoke", "function_calls"])
@pytest.mark.parametrize(
    "closer", ["</parameter>", "</function>", "</tool_call>", "</｜DSML｜parameter>", "</invoke>"]
)  # fmt: skip
def test_ends_that_are_left_over_after_calls_are_not_shown(
    dialect: NativeDialect | XmlDialect | ReactDialect, name: str, closer: str
) -> None:
    text = f"{WRITTEN[name]}\n{closer}\n{closer} Use `{closer}`."
    for pieces in ([text], text):
        parser = dialect.parser(TOOLS)
        found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=True)
        assert shown(found).strip() == f"Use `{closer}`."
        assert called(found) == [("echo", ARGUMENTS)]


@pytest.mark.parametrize("closer", ["</parameter>", "</function>", "</tool_call>"])
def test_ends_that_are_left_over_after_a_real_call_are_not_shown(closer: str) -> None:
    real = ToolCallDelta(index=0, call_id="c1", name="echo", arguments='{"text": "a"}')
    assert shown(parsed(real, TextDelta(text=f"\n{closer}\n"))).strip() == ""
    if closer != "</tool_call>":
        assert outcome(f"<a>\n{closer}\n</a>") == (f"<a>\n{closer}\n</a>", [])


def test_the_channels_of_gpt_oss_are_told_apart() -> None:
    text = (
        "<|channel|>analysis<|message|>They want {it.\n\nSo.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "I look.<|end|><|start|>assistant<|channel|>final <|constrain|>text<|message|>It is `<b>` <|3|>.<|return|>"
    )
    assert outcome(text) == outcome(*text) == ("I look.It is `<b>` <|3|>.", [])
    assert outcome("<|channel|>analysis<|message|>They want it.") == ("", [])
    assert outcome("Hi.<|end|><|start|>assistant") == ("Hi.", [])
    assert outcome("<|start|>assistant\nHi.") == ("Hi.", [])
    leaked = '<|channel|>commentary<|message|>{"text": "a"}<|end|>'
    assert outcome(leaked) == ("", [("", {})])


def test_a_token_that_ends_an_answer_is_not_shown() -> None:
    for end in ("<|im_end|>", "<|END_RESPONSE|>", "<|end_of_solution|>", "<end_of_turn>", "<turn|>"):
        assert outcome(f"Done.{end}") == outcome(*f"Done.{end}") == ("Done.", [])
    assert outcome("ChatML ends with <|im_end|> always.") == ("ChatML ends with <|im_end|> always.", [])


def test_arguments_with_a_key_called_name_are_not_taken_for_a_call() -> None:
    found = outcome('[TOOL_CALLS]echo[ARGS]{"name": "list_commands"}')
    assert found == ("", [("echo", {"name": "list_commands"})])


@pytest.mark.parametrize("mark", ["-", "1.", "2)", "  *", "- +"])
def test_a_fence_that_opens_in_a_list_item_is_code_until_its_end(mark: str) -> None:
    quoted = f"Formats:\n{mark} ```json\n  {WRITTEN['hermes']}\n  ```\n"
    for pieces in ([quoted + WRITTEN["hermes"]], quoted + WRITTEN["hermes"]):
        assert outcome(*pieces) == (quoted, [("echo", ARGUMENTS)])


@pytest.mark.parametrize("mark", ["1. ", "   - ", "- + ", "", "10) "])
def test_a_fence_in_a_list_item_hides_labels_of_react_only_until_its_end(mark: str) -> None:
    quoted = f"Plan:\n{mark}```\n- ```\nAction: list_commands\n{' ' * len(mark)}```\n"
    for pieces in ([f"{quoted}Action: echo\n{{}}"], f"{quoted}Action: echo\n{{}}"):
        parser = ReactDialect().parser(TOOLS)
        found = [one for piece in pieces for one in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=True)
        assert (shown(found), called(found)) == (quoted, [("echo", {})])


def test_several_calls_in_a_fence_are_read() -> None:
    text = "```tool_code\na = default_api.echo(text='''a\n\"b\"''', count=-2)\nprint(list_commands())\n```"
    calls = [("echo", {"text": 'a\n"b"', "count": -2}), ("list_commands", {})]
    assert outcome(text.replace("default_api.echo", "echo")) == ("", calls)
    assert outcome(text) == ("", calls)


@pytest.mark.parametrize("call", ["echo('a')", "echo(**x)", "echo(text=open('a'))", "echo(text=b'a')", "echo(text="])
def test_a_call_in_a_fence_that_is_no_data_is_not_run(call: str) -> None:
    assert outcome(f"```tool_code\n{call}\n```") == ("", [("", {})])


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_that_an_argument_quotes_is_not_run(name: str) -> None:
    for quoted in (WRITTEN[name], WRITTEN["qwen3 coder"], WRITTEN["invoke"], WRITTEN["hermes"]):
        written = quoted.replace("\n", " ").replace("a", "b")
        found = parsed(TextDelta(text=formats(written)["hermes"]))
        assert called(found) == [("echo", {"text": written, "count": 2})]


def test_what_cannot_be_read_is_told_to_the_model_and_not_shown() -> None:
    found = parsed(TextDelta(text="<tool_call>{'name': echo}</tool_call>"))
    (call,) = [one.call for one in found if isinstance(one, CallComplete)]
    assert call.problem is not None
    assert "call as text" in call.problem
    assert shown(found) == ""


def test_what_gemma_writes_around_and_inside_a_call_is_read() -> None:
    text = 'I look.<|tool_call>call:echo{text:<|"|>{a:1, b:"c}<|"|>}<tool_call|>'
    text += "<|tool_call>call:list_commands{}<tool_call|>"
    calls = [("echo", {"text": '{a:1, b:"c}'}), ("list_commands", {})]
    assert outcome(f"{text}<|tool_response>") == outcome(*f"{text}<turn|>") == ("I look.", calls)


@pytest.mark.parametrize("dialect", [XmlDialect(), ReactDialect()], ids=["xml", "react"])
@pytest.mark.parametrize("name", [*WRITTEN, "bare"])
def test_a_text_dialect_reads_other_formats_too(dialect: XmlDialect | ReactDialect, name: str) -> None:
    written = WRITTEN.get(name, JSON_CALL)
    text = written if name == "bare" else f"I look.\n{written}"
    # the tags of this are read as those of the XML dialect, and the model learns what is missing
    is_half_known = dialect.name == "xml" and name == "invoke with JSON"
    for pieces in (text, [text]):
        parser = dialect.parser(TOOLS)
        found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=True)
        assert is_half_known or called(found) == [("echo", ARGUMENTS)]
        assert len(called(found)) == 1
        assert shown(found).strip() == text.removesuffix(written).strip()


MARKS = st.sampled_from([
    *WRITTEN.values(), JSON_CALL, "`", "```", "\n", "\n```\n", " ", "<", "<|end|>", "</tool_call>", "<tool_call>", "a",
    "Thought: x\n", "Action: echo\n", 'Action Input: {"text": "a"}\n', "Final Answer: ", '<invoke name="echo">', '"',
    "<function_calls>", "</function_calls>", '<parameter name="text">', "</parameter>", "<echo>", "</echo>", "{", "}",
    "</invoke>",
])  # fmt: skip


@settings(max_examples=150)
@given(
    st.sampled_from([XmlDialect(), ReactDialect()]),
    st.lists(MARKS, max_size=8).map("".join),
    st.integers(1, 30),
    st.booleans(),
)
def test_a_text_dialect_reads_the_same_whatever_the_pieces(
    dialect: XmlDialect | ReactDialect, text: str, size: int, is_whole: bool
) -> None:
    seen = set[str]()
    for step in (1, size, len(text) + 1):
        parser = dialect.parser(TOOLS)
        pieces = [text[at : at + step] for at in range(0, len(text), step)]
        found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=is_whole)
        seen.add(str((shown(found), called(found), parser.raw_answer)))
    assert len(seen) == 1


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
def test_text_after_the_parameters_of_another_format_is_shown(
    dialect: NativeDialect | XmlDialect | ReactDialect,
) -> None:
    text = f"{WRITTEN['qwen3 coder']}\nI read it. Use `</parameter>`."
    for pieces in (text, [text]):
        parser = dialect.parser(TOOLS)
        found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=True)
        assert called(found) == [("echo", ARGUMENTS)]
        assert shown(found).strip() == "I read it. Use `</parameter>`."


def test_a_call_that_is_also_made_as_a_real_call_runs_once() -> None:
    arguments = '{"text": "a", "count": 2}'
    real = ToolCallDelta(index=0, call_id="c1", name="echo", arguments=arguments)
    found = parsed(TextDelta(text=f"<tool_call>{JSON_CALL}</tool_call>"), real)
    assert called(found) == [("echo", json.loads(arguments))]


def test_a_tool_without_arguments_and_several_calls_are_found() -> None:
    text = f"<tool_call>list_commands</tool_call>\n<tool_call>{JSON_CALL}</tool_call> done"
    found = parsed(TextDelta(text=text))
    assert [name for name, _ in called(found)] == ["list_commands", "echo"]
    assert [one.index for one in found if isinstance(one, CallComplete)] == [0, 1]
    assert shown(found).split() == ["done"]


HOSTILE = ["{", "`", "[", "<", '{"', '"', "\\", "` <tool_call>", '` <tool_call>"`', "<tool_call>{", "[TOOL_CALLS]{"]
HOSTILE += ["<|channel|>", "<|start|>assistant<|message|>", "<tool_call><parameter=", "<|end|>", "```tool_code\n"]
HOSTILE += ["<invoke name=", "</tool_call>", '{"name": "echo", "parameters": {', "<tool_call>{}</tool_call>", "("]


@pytest.mark.parametrize("first", ["", "a", "```tool_code\necho(", "<tool_call>", "[TOOL_CALLS]", "<|channel|>to=a"])
@pytest.mark.parametrize("one", HOSTILE)
def test_hostile_text_is_read_in_linear_time(first: str, one: str) -> None:
    text = first + one * (100_000 // len(one))
    sizes = random.Random(1)
    pieces = list[TextDelta]()
    while text:
        size = sizes.randint(1, 200)
        pieces.append(TextDelta(text=text[:size]))
        text = text[size:]
    assert seconds_of(lambda: parsed(*pieces), seconds_max=1) < 1


@pytest.mark.parametrize("given", ["", "x" * 3000, "call 1", "a\nb", "日本"])
def test_an_id_that_some_provider_refuses_is_replaced(given: str) -> None:
    found = parsed(ToolCallDelta(index=0, call_id=given, name="echo", arguments="{}"))
    (call,) = [one.call for one in found if isinstance(one, CallComplete)]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call.call_id)
    assert call.call_id != given


@pytest.mark.parametrize("given", ["functions.echo:0", "chatcmpl-tool-1", "call_1"])
def test_an_id_is_kept_as_it_came(given: str) -> None:
    found = parsed(ToolCallDelta(index=0, call_id=given, name="echo", arguments="{}"))
    (call,) = [one.call for one in found if isinstance(one, CallComplete)]
    assert call.call_id == given


@pytest.mark.parametrize("call", [f'{{"tool_calls": [{JSON_CALL}]}}', f'{{"function_call": {JSON_CALL}}}'])
def test_calls_between_marks_may_stand_in_one_more_object(call: str) -> None:
    written = f"<tool_call>{call}</tool_call>"
    assert outcome(written) == outcome(*written) == ("", [("echo", ARGUMENTS)])


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
@pytest.mark.parametrize("end", ["/>", " />"])
def test_text_after_a_call_that_ends_in_its_only_tag_is_shown(
    dialect: NativeDialect | XmlDialect | ReactDialect, end: str
) -> None:
    text = f'<invoke name="list_commands"{end}\nI wait.'
    for pieces in (text, [text]):
        parser = dialect.parser(TOOLS)
        found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=True)
        assert (called(found), shown(found).strip()) == ([("list_commands", {})], "I wait.")


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
@pytest.mark.parametrize("half", [JSON_CALL[:40], "{'name': 'echo'}</tool_call>"])
@pytest.mark.parametrize("whole", [WRITTEN["hermes"], WRITTEN["function_calls"]])
def test_a_call_that_cannot_be_read_is_told_also_after_one_that_can(
    dialect: NativeDialect | XmlDialect | ReactDialect, half: str, whole: str
) -> None:
    parser = dialect.parser(TOOLS)
    found = [*parser.feed(TextDelta(text=f"{whole}\n<tool_call>{half}"))]
    found += parser.close(is_whole=True)
    first, second = [one.call for one in found if isinstance(one, CallComplete)]
    assert (first.problem, second.problem) == (None, UNREADABLE)
    assert shown(found).strip() == ""


def test_marks_around_a_call_are_no_call_of_their_own() -> None:
    parser = XmlDialect().parser(TOOLS)
    found = [*parser.feed(TextDelta(text=f"<tool_call>\n{WRITTEN['invoke']}\n</tool_call>"))]
    found += parser.close(is_whole=True)
    assert (called(found), shown(found).strip()) == ([("echo", ARGUMENTS)], "")
