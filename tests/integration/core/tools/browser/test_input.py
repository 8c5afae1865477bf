"""Clicks, text, keys, dropdowns, dragging, dialogs and files, in pages, frames and shadow trees."""

import pytest

from tests.integration.core.tools.browser.desk import SITE, Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.slow
async def test_a_click_presses_and_names_the_element_to_people(desk: Desk) -> None:
    await desk.open("index.html")
    number = desk.index("Press")
    output = await desk.do("browser_click_element", index=number)
    assert output["message"] == f"Clicked [{number}]."
    assert desk.title == "Pressed"
    assert desk.told[-1] == f"Clicking [{number}] Press"


async def test_an_element_keeps_its_number_and_a_number_its_element(desk: Desk) -> None:
    await desk.open("index.html")
    before = list(desk.lines)
    await desk.click("Press")
    assert desk.lines == before

    gone = desk.index("Press")
    await desk.open("second.html")
    assert not {line.split("]")[0] for line in desk.lines} & {line.split("]")[0] for line in before}
    said = await desk.error("browser_click_element", index=gone)
    assert (
        said == f"Element [{gone}] is gone: the page has changed. Use a number of the newest list."
    )
    assert "There is no element [99999]" in await desk.error("browser_click_element", index=99999)


async def test_a_point_is_clicked(desk: Desk) -> None:
    await desk.open("points.html")
    await desk.do("browser_click_coordinates", x=321, y=123)
    assert desk.title == "321 123"
    said = await desk.error("browser_click_coordinates", x=5000, y=10)
    assert "outside the picture of 1280 x 800" in said


async def test_a_form_is_filled_in_and_sent(desk: Desk) -> None:
    await desk.open("form.html")
    assert desk.lines[0].endswith('] <input value="old"> "Name"')
    await desk.do("browser_input_text", index=desk.index('"Name"'), text="Åse; 'quoted'")
    await desk.do("browser_input_text", index=desk.index('"Day"'), text="2026-01-31")
    assert desk.title == "Day 2026-01-31"
    await desk.do("browser_input_text", index=desk.index('"Free"'), text="free words")
    assert desk.title == "Free free words"
    await desk.do("browser_input_text", index=desk.index('"Notes"'), text="two\nlines")
    assert 'value="two lines"' in next(line for line in desk.lines if "Notes" in line)
    await desk.click('"Send"')
    assert desk.title == "Sent Åse; 'quoted'"


async def test_a_password_is_not_repeated(desk: Desk) -> None:
    await desk.open("form.html")
    await desk.do("browser_input_text", index=desk.index('"Word"'), text="swordfish")
    assert "swordfish" not in "".join(desk.lines)
    assert 'value="(hidden)"' in next(line for line in desk.lines if "Word" in line)


async def test_fields_that_take_no_such_text_say_what_to_do(desk: Desk) -> None:
    await desk.open("form.html")
    said = await desk.error("browser_input_text", index=desk.index('"Day"'), text="tomorrow")
    assert "dates as 2026-01-31" in said
    said = await desk.error("browser_click_element", index=desk.index("Never"))
    assert "is disabled" in said
    said = await desk.error("browser_click_element", index=desk.index('"Country"'))
    assert "use browser_get_dropdown_options" in said


async def test_a_dropdown_is_read_and_chosen_from(desk: Desk) -> None:
    await desk.open("form.html")
    country = desk.index('"Country"')
    output = await desk.do("browser_get_dropdown_options", index=country)
    assert output["message"].splitlines()[1:] == [
        '"Choose" (selected)',
        '"Norway"',
        '"Sweden"',
        '"Atlantis" (disabled)',
    ]
    await desk.do("browser_select_dropdown_option", index=country, text="Sweden")
    assert desk.title == "Chose se"
    said = await desk.error("browser_select_dropdown_option", index=country, text="Norge")
    assert "browser_get_dropdown_options lists them" in said
    said = await desk.error("browser_select_dropdown_option", index=country, text="Atlantis")
    assert "is disabled" in said
    send = desk.index('"Send"')
    assert "has no options" in await desk.error("browser_get_dropdown_options", index=send)


@pytest.mark.parametrize(
    ("keys", "title"),
    [("Enter", "Enter"), ("ctrl+k", "Control+k"), ("Tab Escape", "Escape"), ("down", "ArrowDown")],
)
async def test_keys_are_pressed(desk: Desk, keys: str, title: str) -> None:
    await desk.open("keys.html")
    await desk.do("browser_send_keys", keys=keys)
    await desk.until_title(title)


async def test_an_unknown_key_is_told_with_examples(desk: Desk) -> None:
    await desk.open("keys.html")
    assert "Examples: Enter" in await desk.error("browser_send_keys", keys="Hyperspace")


@pytest.mark.parametrize("frame", ["inside.html?same", "inside.html?other"])
async def test_frames_are_listed_and_used_wherever_they_come_from(desk: Desk, frame: str) -> None:
    await desk.open("frames.html")
    while len(desk.lines) < 5:  # frames may come late
        await desk.do("browser_wait", seconds=1)
    assert any('"Source" (in the frame "about:srcdoc")' in line for line in desk.lines)
    where = f'/{frame}")'
    inside = [line for line in desk.lines if line.endswith(where)]
    button, field = (int(line[1 : line.index("]")]) for line in inside)

    await desk.do("browser_input_text", index=field, text="into the frame")
    await desk.do("browser_click_element", index=button)

    now = "".join(line for line in desk.lines if line.endswith(where))
    assert 'value="into the frame"' in now
    assert f'"Done ?{frame.partition("?")[2]}"' in now


async def test_open_shadow_trees_are_listed_and_used(desk: Desk) -> None:
    await desk.open("shadow.html")
    await desk.do("browser_input_text", index=desk.index("Deeper"), text="x")
    await desk.click('"Deep"')
    assert desk.title == "Reached"


async def test_what_lies_under_something_else_is_not_listed(desk: Desk) -> None:
    await desk.open("covered.html")
    assert [line.split('"')[1] for line in desk.lines] == ["Over"]


async def test_dialogs_are_answered_and_told(desk: Desk) -> None:
    await desk.open("dialogs.html")
    output = await desk.click("Alert")
    assert output["happened"] == ["The page showed a dialog (alert): 'Be aware'. It was accepted."]
    assert desk.title == "Told"

    output = await desk.click("Confirm")
    assert "(confirm): 'Delete everything?'. It was dismissed." in output["happened"][0]
    assert desk.title == "Answer false"
    await desk.click("Prompt")
    assert desk.title == "Answer null"


async def test_the_next_dialogs_answer_is_chosen_and_only_that(desk: Desk) -> None:
    await desk.open("dialogs.html")
    await desk.do("browser_answer_dialog", accept=True)
    output = await desk.click("Confirm")
    assert "It was accepted." in output["happened"][0]
    assert desk.title == "Answer true"
    await desk.click("Confirm")
    assert desk.title == "Answer false"
    await desk.do("browser_answer_dialog", accept=True, text="Ida")
    await desk.click("Prompt")
    assert desk.title == "Answer Ida"


async def test_a_page_that_does_not_want_to_be_left_is_left(desk: Desk) -> None:
    await desk.open("dialogs.html")
    await desk.click("Guard")
    await desk.open("second.html")
    assert desk.title == "Second"


async def test_dragging_really_drops(desk: Desk) -> None:
    await desk.open("drag.html")
    thing, zone = desk.index("Thing"), desk.index("Zone")
    await desk.do("browser_drag_drop", element_source=str(thing), element_target=f"[{zone}]")
    await desk.until_title("Dropped thing")


async def test_dragging_by_selector_and_by_point(desk: Desk) -> None:
    await desk.open("drag.html")
    await desk.do("browser_drag_drop", element_source="#thing", element_target="#zone")
    await desk.until_title("Dropped thing")

    await desk.do(
        "browser_drag_drop",
        element_source="#follower",
        coord_target_x=700,
        coord_target_y=400,
    )
    place = desk.title.split(" ")
    assert place[0] == "At"
    assert abs(int(place[1]) - (700 - 76)) <= 12
    said = await desk.error("browser_drag_drop", element_source="#none", element_target="#zone")
    assert "neither the number of an element nor a CSS selector" in said


async def test_both_ends_of_a_drag_are_needed(desk: Desk) -> None:
    outcome = await desk.call("browser_drag_drop", element_source="1", coord_target_x=3)
    assert "both ends are needed" in str(outcome.result["error"])


async def test_a_file_goes_to_a_field_and_to_a_button_that_asks(desk: Desk) -> None:
    await desk.put("note.txt", b"from us")
    await desk.open("files.html")
    attach = desk.index('"Attach"')
    await desk.do("browser_upload_file", index=attach, file_path="note.txt")
    await desk.until_title("note.txt: from us")
    await desk.put("other.txt", b"more")
    await desk.do("browser_upload_file", index=desk.index("Choose"), file_path="other.txt")
    await desk.until_title("other.txt: more")

    said = await desk.error("browser_upload_file", index=attach, file_path="missing.txt")
    assert "There is no file missing.txt" in said
    said = await desk.error("browser_click_element", index=attach)
    assert "use browser_upload_file" in said


@pytest.mark.slow
async def test_a_button_that_asks_for_no_file_is_told(desk: Desk) -> None:
    await desk.put("note.txt", b"from us")
    await desk.open("index.html")
    press = desk.index("Press")
    said = await desk.error("browser_upload_file", index=press, file_path="note.txt")
    assert "neither accepts a file nor asks for one" in said


@pytest.mark.slow
async def test_files_are_downloaded_into_the_workspace(desk: Desk) -> None:
    await desk.open("files.html")
    output = await desk.do("browser_download", index=desk.index("Report"))
    assert output["happened"] == ["Downloaded downloads/re port.csv (8 bytes)."]
    assert await desk.get("downloads/re port.csv") == b"a,b\n1,2\n"

    output = await desk.do("browser_download", url=f"{SITE}/report.csv")
    assert output["happened"] == ["Downloaded downloads/re port-2.csv (8 bytes)."]
    output = await desk.do("browser_download", url=f"{SITE}/plain.txt")
    assert output["happened"] == ["Downloaded downloads/plain.txt (11 bytes)."]
    assert await desk.get("downloads/plain.txt") == b"plain words"
    assert desk.title == "Files"

    said = await desk.error("browser_download", url=f"{SITE}/nothing.zip")
    assert "has nothing to download (HTTP 404)" in said
    output = await desk.do("browser_navigate_to", url=f"{SITE}/report.csv")
    assert "it is being downloaded" in output["message"]
