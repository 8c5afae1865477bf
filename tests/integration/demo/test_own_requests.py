"""What a user tries in the demonstration after its stories: another table, own words, and reasons."""

from collections.abc import AsyncIterator

import pytest

from bots.demo.environment import DemoEnvironment, start_demo
from bots.demo.handbook_story import PROMPT, handbook_file
from bots.demo.mcp_notice_board import read_notices
from bots.demo.story_helpers import send_request
from bots.demo.trap_page_story import trap_page_prompt
from bots.settings import load_settings
from tests.support.waiting import until

PATIENCE_SECONDS = 60.0


@pytest.fixture
async def demo() -> AsyncIterator[DemoEnvironment]:
    async with start_demo(load_settings({"THREADHAND_SANDBOX": "unsafe-process"}, None)) as running:
        yield running


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
