import time

import pytest

from core.dialects.dialect import CallComplete
from core.dialects.xml import XmlDialect, format_call, format_invoke
from core.ports import TextDelta, ToolCallDelta
from tests.fakes.llm_xml_reading import TOOLS, arguments_of, invoke, parsed


def test_a_call_is_taken_out_of_the_text_around_it():
    text = "First.\n" + format_call("wait", {"seconds": 3}) + "\nThen."
    visible, calls, stored = parsed(text)
    assert visible == "First.\n\nThen."
    assert calls == [("wait", {"seconds": 3}, None, format_invoke("wait", {"seconds": 3}))]
    assert stored == text


@pytest.mark.parametrize("tag", ["function_results", "tool_response"])
def test_results_that_the_model_invents_are_neither_shown_nor_kept(tag: str):
    call = format_call("wait", {"seconds": 3})
    text = f"First.\n{call}\n<{tag}>\n12 rows\n</{tag}>\nThere are 12 rows."
    visible, calls, stored = parsed(text)
    assert visible.strip() == "First."
    assert [name for name, *_ in calls] == ["wait"]
    assert stored.strip() == f"First.\n{call}".strip()
    about = f"Wrap it in <{tag}>: it helps."
    assert parsed(about)[0] == about


def test_every_call_of_every_block_counts():
    block = f"<function_calls>{invoke('wait', ('seconds', '1'))}\n{invoke('complete')}</function_calls>"
    assert arguments_of(block + " and " + block) == [("wait", {"seconds": 1}), ("complete", {})] * 2


def test_two_calls_of_the_same_name_keep_their_own_raw_text():
    first, second = invoke("wait", ("seconds", "1")), invoke("wait", ("seconds", "2"))
    _, calls, _ = parsed(f"<function_calls>\n{first}\n{second}\n</function_calls>")
    assert [raw for *_, raw in calls] == [first, second]


@pytest.mark.parametrize(
    "value",
    [
        "  leading and trailing  ",
        "\nline\n",
        "a && b < c > d &amp; &lt;x&gt;",
        "<![CDATA[ kept ]]>",
        'say("</parameter>")',
        "</parameter>",
        "</parameter",
        "</param",
        "<",
        "</invoke>",
        "</function_calls>",
        "<parameter name=",
        '<parameter name="x">',
        '<parameter name="file_path">inner</parameter>',
        '<parameter name="a">1</parameter>\n<parameter name="b">2</parameter>',
        '<invoke name="x">',
        '<invoke name="create_file"><parameter name="file_path">x</parameter></invoke>',
        format_call("create_file", {"file_contents": "in", "file_path": "it"}),
        "```\n" + format_call("wait", {"seconds": "1"}) + "\n```",
        "<create-file>\n<ask>no</ask>",
        "it's `code` ``` and ~~~",
        "",
    ],
)
def test_values_are_verbatim_whatever_they_look_like(value: str):
    """Also where the parameter after it is known to the tool."""
    first = {"file_contents": value, "file_path": "007"}
    last = {"file_path": "007", "file_contents": value}
    assert arguments_of(format_call("create_file", first)) == [("create_file", first)]
    assert arguments_of(format_call("create_file", last) + " x") == [("create_file", last)]


@pytest.mark.parametrize(
    "text",
    [
        "<invoke name='wait'><parameter name='seconds'>3</parameter></invoke>",
        '<invoke  id="1"  name = "wait" ><parameter type="int" name="seconds" >3</parameter ></invoke >',
        "<invoke name=wait><parameter\n name=seconds>3</parameter></invoke>",
        '<function_calls x="1">\n<INVOKE name="wait"><parameter name="seconds"> 3 </parameter>\n\n</invoke>',
    ],
)
def test_loosely_written_tags_are_understood(text: str):
    assert arguments_of(text) == [("wait", {"seconds": 3})]


@pytest.mark.parametrize(
    "text",
    [
        "```xml\n{}\n```\n",
        "````\n```\n{}\n```\n````",
        "~~~\n{}\n~~~",
        "1. so:\n   ```\n   {}\n   ```",
        "> ```\n> {}\n> ```",
        "```\n{}",
    ],
)
def test_calls_in_fences_are_text(text: str):
    whole = text.format(format_call("wait", {"seconds": 1}))
    assert parsed(whole)[:2] == (whole, [])


@pytest.mark.parametrize("text", ["use `{}` for it", "use ``a ` {}`` for it", "`<function_calls>` opens, `{}` too"])
def test_calls_in_inline_code_are_text(text: str):
    whole = text.format('<invoke name="wait">')
    assert parsed(whole)[:2] == (whole, [])


def test_a_call_after_a_fence_or_a_lonely_backtick_counts():
    call = format_call("wait", {"seconds": 1})
    assert arguments_of(f"```\ncode\n```\n{call}") == [("wait", {"seconds": 1})]
    assert arguments_of(f"it's a ` here {call}") == [("wait", {"seconds": 1})]
    assert arguments_of(f"\\`{call}`") == [("wait", {"seconds": 1})]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('<function_calls><invoke name="wait"><parameter name="seconds">1', ["wait"]),
        ('<invoke name="wait"><parameter name="seconds">1</parameter></function_calls> x', ["wait"]),
        ('<invoke name="wait"><parameter name="seconds">1</parameter>', ["wait"]),
        (
            '<invoke name="wait"><parameter name="seconds">1</parameter>\n<invoke name="complete"></invoke>',
            ["wait", "complete"],
        ),
        ("<invoke ><parameter name='a'>1</parameter></invoke>", [""]),
        ('<invoke name="wait">{"seconds": 1}</invoke>', ["wait"]),
        ("<ask>what", ["ask"]),
        ("<complete>no text here</complete>", ["complete"]),
    ],
)
def test_what_cannot_be_read_is_a_problem_told_to_the_model(text: str, names: list[str]):
    _, calls, _ = parsed(text)
    assert [name for name, *_ in calls] == names
    _, arguments, problem, _ = calls[0]
    assert arguments == {}
    assert problem is not None
    assert problem.endswith(".")


def test_an_interrupted_answer_keeps_its_text_and_loses_its_half_call():
    whole = "<function_calls>\n" + invoke("wait", ("seconds", "1"))
    visible, calls, stored = parsed("Hi. " + whole + '\n<invoke name="wa', is_whole=False)
    assert visible == "Hi. "
    assert [name for name, *_ in calls] == ["wait"]
    assert stored == "Hi. " + whole + "\n\n</function_calls>"
    assert parsed("Hi. <function_calls>\n<invoke name='wait'>", is_whole=False) == ("Hi. ", [], "Hi. ")
    assert parsed("Hi. <functi", is_whole=False) == ("Hi. ", [], "Hi. ")


def test_reading_stops_at_the_limit_and_the_stored_text_ends_with_a_closed_block():
    call = invoke("wait", ("seconds", "1"))
    visible, calls, stored = parsed(f"Go <function_calls>{call}{call}</function_calls> on", calls_max=1)
    assert (visible, len(calls)) == ("Go ", 1)
    assert stored == f"Go <function_calls>{call}\n</function_calls>"


def test_before_the_end_the_stored_text_ends_with_the_last_complete_call():
    parser = XmlDialect().parser(TOOLS)
    call = invoke("wait", ("seconds", "1"))
    parser.feed(TextDelta(text=f"Go {call} and on"))
    assert parser.raw_answer == f"Go {call}"


def test_a_call_is_complete_as_soon_as_its_end_is_there():
    parser = XmlDialect().parser(TOOLS)
    found = parser.feed(TextDelta(text="<function_calls>" + invoke("complete")))
    assert [type(one) for one in found] == [CallComplete]


def test_the_older_form_has_attributes_and_content():
    text = '<create-file file_path="a &lt;&amp;&quot; b?x=1&copy=2">\n  CONTENT &amp; </b>\n</create-file>'
    assert arguments_of(text) == [
        ("create_file", {"file_path": 'a <&" b?x=1&copy=2', "file_contents": "\n  CONTENT &amp; </b>\n"})
    ]
    assert arguments_of('<ask text="a > b?"/><complete />') == [("ask", {"text": "a > b?"}), ("complete", {})]
    nested = "<create-file file_path='a'>x <create-file>y</create-file> z</create-file>"
    assert arguments_of(nested)[0][1]["file_contents"] == "x <create-file>y</create-file> z"
    children = "<str-replace>\n<old_str> a</old_str>\n<new_str>b </new_str>\n</str-replace>"
    assert arguments_of(children) == [("str_replace", {"old_str": " a", "new_str": "b "})]


def test_native_deltas_are_passed_over():
    parser = XmlDialect().parser(TOOLS)
    assert parser.feed(ToolCallDelta(index=0, name="wait", arguments="{}")) == ()
    assert (parser.close(is_whole=True), parser.raw_answer) == ([], "")


def test_an_unknown_tool_is_called_by_its_name():
    assert arguments_of(invoke("nothing", ("a", "1"))) == [("nothing", {"a": "1"})]


def test_many_backticks_before_tags_on_one_line_take_linear_time():
    parser = XmlDialect().parser(TOOLS)
    began = time.process_time()
    for _ in range(6_000):
        parser.feed(TextDelta(text="\\``</invoke>"))
    parser.close(is_whole=True)
    # each looked for its end to the end of the line: the square of the text
    assert time.process_time() - began < 2
