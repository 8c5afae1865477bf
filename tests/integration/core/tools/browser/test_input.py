"""Clicks, text, keys, dropdowns, dragging, dialogs and files, in pages, frames and shadow trees."""

import pytest

from tests.integration.core.tools.browser.browser_stage import SITE, BrowserStage

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_element_keeps_its_number_and_a_number_its_element(stage: BrowserStage) -> None:
    await stage.open("index.html")
    before = list(stage.lines)
    await stage.click("Press")
    assert stage.lines == before

    gone = stage.index("Press")
    await stage.open("second.html")
    assert not {line.split("]")[0] for line in stage.lines} & {line.split("]")[0] for line in before}
    said = await stage.error("browser_click_element", index=gone)
    assert said == f"Element [{gone}] is gone: the page has changed. Use a number of the newest list."
    assert "There is no element [99999]" in await stage.error("browser_click_element", index=99999)


async def test_a_form_is_filled_in_and_sent(stage: BrowserStage) -> None:
    await stage.open("form.html")
    assert stage.lines[0].endswith('] <input value="old"> "Name"')
    await stage.do("browser_input_text", index=stage.index('"Name"'), text="Åse; 'quoted'")
    await stage.do("browser_input_text", index=stage.index('"Day"'), text="2026-01-31")
    assert stage.title == "Day 2026-01-31"
    await stage.do("browser_input_text", index=stage.index('"Free"'), text="free words")
    assert stage.title == "Free free words"
    await stage.do("browser_input_text", index=stage.index('"Notes"'), text="two\nlines")
    assert 'value="two lines"' in next(line for line in stage.lines if "Notes" in line)
    await stage.click('"Send"')
    assert stage.title == "Sent Åse; 'quoted'"


async def test_a_password_is_not_repeated(stage: BrowserStage) -> None:
    await stage.open("form.html")
    await stage.do("browser_input_text", index=stage.index('"Word"'), text="swordfish")
    assert "swordfish" not in "".join(stage.lines)
    assert 'value="(hidden)"' in next(line for line in stage.lines if "Word" in line)


async def test_a_dropdown_is_read_and_chosen_from(stage: BrowserStage) -> None:
    await stage.open("form.html")
    country = stage.index('"Country"')
    output = await stage.do("browser_get_dropdown_options", index=country)
    assert output["message"].splitlines()[1:] == [
        '"Choose" (selected)',
        '"Norway"',
        '"Sweden"',
        '"Atlantis" (disabled)',
    ]
    await stage.do("browser_select_dropdown_option", index=country, text="Sweden")
    assert stage.title == "Chose se"
    said = await stage.error("browser_select_dropdown_option", index=country, text="Norge")
    assert '"Norway"\n"Sweden"' in said
    said = await stage.error("browser_select_dropdown_option", index=country, text="Atlantis")
    assert "is disabled" in said
    send = stage.index('"Send"')
    assert "has no options" in await stage.error("browser_get_dropdown_options", index=send)


@pytest.mark.parametrize(
    ("keys", "title"), [("Enter", "Enter"), ("ctrl+k", "Control+k"), ("Tab Escape", "Escape"), ("down", "ArrowDown")]
)
async def test_keys_are_pressed(stage: BrowserStage, keys: str, title: str) -> None:
    await stage.open("keys.html")
    await stage.do("browser_send_keys", keys=keys)
    await stage.until_title(title)


@pytest.mark.parametrize("frame", ["inside.html?same", "inside.html?other"])
async def test_frames_are_listed_and_used_wherever_they_come_from(stage: BrowserStage, frame: str) -> None:
    await stage.open("frames.html")
    while len(stage.lines) < 5:  # frames may come late
        await stage.do("browser_wait", seconds=1)
    assert any('"Source" (in the frame "about:srcdoc")' in line for line in stage.lines)
    where = f'/{frame}")'
    inside = [line for line in stage.lines if line.endswith(where)]
    button, field = (int(line[1 : line.index("]")]) for line in inside)

    await stage.do("browser_input_text", index=field, text="into the frame")
    await stage.do("browser_click_element", index=button)

    now = "".join(line for line in stage.lines if line.endswith(where))
    assert 'value="into the frame"' in now
    assert f'"Done ?{frame.partition("?")[2]}"' in now


async def test_fields_behind_their_labels_are_listed_and_used(stage: BrowserStage) -> None:
    await stage.open("labels.html")
    assert [line.split("] ", 1)[1] for line in stage.lines] == [
        '<input type="radio" value="on"> "Tea"',
        '<input type="radio" value="on"> "Milk"',
        '<input type="checkbox" value="on"> "I accept the terms and conditions"',
        '<a href="second.html"> "terms and conditions"',
        '<input type="file"> "Paper"',
        '<input type="file"> "Photo"',
        '<input type="checkbox" value="on"> "Plain"',
    ]
    for name, title in (("Tea", "tea"), ("Milk", "milk"), ("I accept", "termstrue")):
        await stage.click(f'"{name}')
        await stage.until_title(title)
        assert sum(" checked" in line for line in stage.lines) == (2 if name == "I accept" else 1)
    for name in ("Paper", "Photo"):
        await stage.put(f"{name}.txt", b"here")
        await stage.do("browser_upload_file", index=stage.index(f'"{name}"'), file_path=f"{name}.txt")
        await stage.until_title(f"{name}.txt")


async def test_dialogs_are_answered_and_told(stage: BrowserStage) -> None:
    await stage.open("dialogs.html")
    output = await stage.click("Alert")
    assert output["happened"] == ["The page showed a dialog (alert): 'Be aware'. It was accepted."]
    assert stage.title == "Told"

    await stage.do("browser_answer_dialog", accept=True)
    await stage.click("Confirm")
    assert stage.title == "Answer true"
    output = await stage.click("Confirm")
    assert "(confirm): 'Delete everything?'. It was dismissed." in output["happened"][0]
    assert stage.title == "Answer false"
    await stage.click("Prompt")
    assert stage.title == "Answer null"


async def test_dragging_really_drops(stage: BrowserStage) -> None:
    await stage.open("drag.html")
    thing, zone = stage.index("Thing"), stage.index("Zone")
    await stage.do("browser_drag_drop", element_source=str(thing), element_target=f"[{zone}]")
    await stage.until_title("Dropped thing")


async def test_a_file_goes_to_a_field_and_to_a_button_that_asks(stage: BrowserStage) -> None:
    await stage.put("note.txt", b"from us")
    await stage.open("files.html")
    attach = stage.index('"Attach"')
    await stage.do("browser_upload_file", index=attach, file_path="note.txt")
    await stage.until_title("note.txt: from us")
    await stage.put("other.txt", b"more")
    await stage.do("browser_upload_file", index=stage.index("Choose"), file_path="other.txt")
    await stage.until_title("other.txt: more")

    said = await stage.error("browser_upload_file", index=attach, file_path="missing.txt")
    assert "There is no file missing.txt" in said
    said = await stage.error("browser_click_element", index=attach)
    assert "use browser_upload_file" in said


async def test_files_are_downloaded_into_the_workspace(stage: BrowserStage) -> None:
    await stage.open("files.html")
    output = await stage.do("browser_download", index=stage.index("Report"))
    assert output["happened"] == ["Downloaded downloads/re port.csv (8 bytes)."]
    assert await stage.get("downloads/re port.csv") == b"a,b\n1,2\n"

    output = await stage.do("browser_download", url=f"{SITE}/report.csv")
    assert output["happened"] == ["Downloaded downloads/re port-2.csv (8 bytes)."]
    output = await stage.do("browser_download", url=f"{SITE}/plain.txt")
    assert output["happened"] == ["Downloaded downloads/plain.txt (11 bytes)."]
    assert await stage.get("downloads/plain.txt") == b"plain words"
    assert stage.title == "Files"

    said = await stage.error("browser_download", url=f"{SITE}/nothing.zip")
    assert "has nothing to download (HTTP 404)" in said
    output = await stage.do("browser_navigate_to", url=f"{SITE}/report.csv")
    assert "it is being downloaded" in output["message"]


@pytest.mark.parametrize(("page", "names"), [("covered.html", ["Over"]), ("shadow.html", ["Deep", "Deeper"])])
async def test_what_can_be_reached_is_listed(stage: BrowserStage, page: str, names: list[str]) -> None:
    await stage.open(page)
    assert [line.split('"')[1] for line in stage.lines] == names


@pytest.mark.parametrize(
    ("page", "name", "tool", "arguments", "said"),
    [
        ("form.html", '"Day"', "browser_input_text", {"text": "tomorrow"}, "dates as 2026-01-31"),
        ("form.html", "Never", "browser_click_element", {}, "is disabled"),
        ("form.html", '"Country"', "browser_click_element", {}, "is a dropdown: use browser_select_dropdown_option"),
        ("form.html", '"Country"', "browser_input_text", {"text": "Norge"}, "has no option 'Norge'"),
        ("labels.html", '"Plain"', "browser_input_text", {"text": "yes"}, "accepts no text: click it"),
        (
            "index.html",
            "Press",
            "browser_upload_file",
            {"file_path": "note.txt"},
            "neither accepts a file nor asks for",
        ),
    ],
)
async def test_an_element_that_takes_no_such_thing_says_what_to_do(
    stage: BrowserStage, page: str, name: str, tool: str, arguments: dict[str, str], said: str
) -> None:
    await stage.put("note.txt", b"from us")
    await stage.open(page)
    assert said in await stage.error(tool, index=stage.index(name), **arguments)


async def test_a_point_is_clicked(stage: BrowserStage) -> None:
    await stage.open("points.html")
    await stage.do("browser_click_coordinates", x=321, y=123)
    assert stage.title == "321 123"


async def test_both_ends_of_a_drag_are_needed(stage: BrowserStage) -> None:
    outcome = await stage.call("browser_drag_drop", element_source="1", coord_target_x=3)
    assert "both ends are needed" in str(outcome.result["error"])
