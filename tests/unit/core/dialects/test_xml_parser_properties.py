from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.xml import format_call
from tests.fakes.llm_xml_reading import arguments_of, parsed

PIECES = st.sampled_from(
    [
        "<function_calls>",
        "</function_calls>",
        '<invoke name="create_file">',
        '<invoke name="wait"/>',
        "</invoke>",
        '<parameter name="file_path">',
        '<parameter name="file_contents">',
        '<parameter name="other">',
        "</parameter>",
        "<create-file file_path='x'>",
        "</create-file>",
        "<ask>",
        "</ask>",
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        " ",
        "\\",
        "text",
        "<",
        "</",
        "<invo",
        "<parameter name='",
        ">",
        "&&",
        "é🙂",
    ]
)
ANSWERS = st.lists(PIECES | st.text(max_size=4), max_size=24).map("".join)


@given(text=ANSWERS, picks=st.lists(st.integers(0, 10_000), max_size=12), is_whole=st.booleans())
def test_cutting_an_answer_anywhere_changes_nothing(text: str, picks: list[int], is_whole: bool):
    cuts = sorted({pick % (len(text) + 1) for pick in picks})
    assert parsed(text, cuts=cuts, is_whole=is_whole) == parsed(text, is_whole=is_whole)
    assert parsed(text, cuts=range(1, len(text)), is_whole=is_whole) == parsed(text, is_whole=is_whole)


@settings(deadline=None)
@given(text=ANSWERS)
def test_no_text_is_made_up_and_a_whole_answer_is_stored_whole(text: str):
    visible, _, stored = parsed(text)
    assert stored == text
    rest = iter(text)
    assert all(character in rest for character in visible)


@settings(deadline=None)
@given(contents=st.lists(PIECES | st.text(max_size=4), max_size=8).map("".join))
def test_any_value_without_the_end_of_a_call_comes_back(contents: str):
    squeezed = "".join(contents.split())
    if any(tag in squeezed for tag in ("</parameter><", "<parametername=", "<invokename=", "invoke>")):
        return
    arguments = {"file_path": "a", "file_contents": contents}
    assert arguments_of(format_call("create_file", arguments)) == [("create_file", arguments)]


@settings(deadline=None)
@given(text=ANSWERS.map(lambda text: text.replace("`", "").replace("~", "")))
def test_people_never_see_the_markup_of_calls(text: str):
    visible, _, _ = parsed(text)
    for tag in ("<function_calls>", "</function_calls>", "<invoke name", "</invoke>", "<ask>"):
        assert tag not in visible or tag not in text
