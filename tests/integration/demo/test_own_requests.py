"""What a user tries in the demonstration after its stories: another table, own words, and reasons."""

from collections.abc import AsyncIterator

import pytest

from bots.demo.environment import DemoEnvironment, start_demo
from bots.demo.file_stories import TABLE_PROMPT
from bots.demo.handbook_story import PROMPT, handbook_file
from bots.demo.mcp_notice_board import read_notices
from bots.demo.story_helpers import files_of_agent, first_channel, send_request
from bots.demo.thread_reader import text_of
from bots.demo.trap_page_story import trap_page_prompt
from bots.settings import load_settings
from simulator.view import SentFile
from tests.support.waiting import until

PATIENCE_SECONDS = 60.0
SHEET = "Kunde;Größe;Betrag\nMüller;S;1.234,50\nHuber;M;2.000,00\nMüller;L;10\n".encode("cp1252")


@pytest.fixture
async def demo() -> AsyncIterator[DemoEnvironment]:
    async with start_demo(load_settings({"THREADHAND_SANDBOX": "unsafe-process"}, None)) as running:
        yield running


async def test_a_table_of_another_program_is_added_up(demo: DemoEnvironment) -> None:
    sent = SentFile(name="umsatz.csv", content=SHEET, mime_type="text/csv")
    watch = await send_request(demo.slack, TABLE_PROMPT, sent, PATIENCE_SECONDS)
    question, _ = await watch.wait_for_question("Markdown")
    assert "The total is 3244.5, and Huber comes first." in text_of(question)


async def test_own_words_at_the_question_get_the_report(demo: DemoEnvironment) -> None:
    sent = SentFile(name="sales.csv", content=b"region,amount\nNorth,5\nSouth,7\n", mime_type="text/csv")
    watch = await send_request(demo.slack, TABLE_PROMPT, sent, PATIENCE_SECONDS)
    await watch.wait_for_question("Markdown")
    channel = first_channel(demo.slack.view())
    await demo.slack.say("alice", channel, "as a poem, please", thread_id=watch.thread_id)
    await watch.wait_until(lambda: any(one.name == "report.md" for one in files_of_agent(watch)), "the report arrives")
    assert any("can't follow your own words" in text for text in watch.bot_texts(except_id=""))


@pytest.mark.parametrize("answer", ["I did not pin it.", "so I asked you first."])
async def test_a_reason_for_a_no_is_taken(demo: DemoEnvironment, answer: str) -> None:
    prompt, file = (PROMPT, handbook_file()) if "pin" in answer else (trap_page_prompt(demo.site_url), None)
    watch = await send_request(demo.discord, prompt, file, PATIENCE_SECONDS)
    question, button = await watch.wait_for_question("Deny with a reason")
    await demo.discord.press("bob", watch.thread_id, question.message_id, button.control_id)
    (form,) = await until(lambda: demo.discord.view().forms)
    await demo.discord.submit("bob", form.form_id, {form.fields[0].field_id: "it is too early"})
    await watch.wait_until(
        lambda: any(answer in text for text in watch.bot_texts(except_id="")), "the answer takes the reason"
    )
    assert read_notices(demo.board) == []
