"""Buttons, menus, forms, commands and sessions, with the real bolt on the other side."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSettings, SlackSimulator
from simulator.view import Select
from tests.integration.simulator.slack.conftest import Recorder, seen
from tests.integration.simulator.slack.test_web_api import code, general
from tests.support.waiting import until
from tests.unit.simulator.slack.test_blocks import button, option, plain, select

ASK = {
    "type": "actions",
    "block_id": "ask",
    "elements": [
        button(action_id="yes", value="1", style="primary"),
        select(action_id="pick", options=[option(), option(value="b", text=plain("B"))], placeholder=plain("Choose")),
        {"type": "checkboxes", "action_id": "many", "options": [option(), option(value="b")]},
        {"type": "overflow", "action_id": "menu", "options": [option(), option(value="b")]},
    ],
}
FORM = {
    "type": "modal",
    "callback_id": "form",
    "private_metadata": "kept",
    "title": plain("Question"),
    "submit": plain("Send"),
    "blocks": [
        {
            "type": "input",
            "block_id": "why",
            "label": plain("Why?"),
            "element": {"type": "plain_text_input", "action_id": "text", "multiline": True},
        },
        {
            "type": "input",
            "block_id": "which",
            "label": plain("Which?"),
            "optional": True,
            "element": select(action_id="pick", options=[option()]),
        },
    ],
}


async def asked(slack: SlackSimulator, client: AsyncWebClient) -> str:
    posted = await client.chat_postMessage(channel=general(slack), text="ask", blocks=[ASK])
    return str(posted["ts"])


def catching(bot: Recorder, *names: str) -> list[dict[str, Any]]:
    caught: list[dict[str, Any]] = []

    async def take(ack: Callable[[], Awaitable[None]], body: dict[str, Any]) -> None:
        await ack()
        caught.append(body)

    for name in names:
        bot.app.action(name)(take)
    return caught


async def test_a_chosen_option_comes_with_its_text_and_stays_in_the_state(slack: SlackSimulator, bot: Recorder) -> None:
    caught, ts = catching(bot, "pick", "many", "menu"), await asked(slack, bot.client)
    menus = [e for e in seen(slack).messages[0].elements if isinstance(e, Select)]
    assert [(option.value, option.label) for option in menus[0].options] == [("a", "a"), ("b", "B")]
    for control_id, value in (("ask/pick", "b"), ("ask/many", "a,b"), ("ask/menu", "b")):
        await slack.press("bob", general(slack), ts, control_id, value=value)
    picked, many, menu = [body["actions"][0] for body in caught]
    assert picked["selected_option"] == option(value="b", text=plain("B"))
    assert [entry["value"] for entry in many["selected_options"]] == ["a", "b"]
    assert menu["selected_option"]["value"] == "b"
    state = caught[-1]["state"]["values"]["ask"]
    assert state["pick"]["selected_option"]["value"] == "b"
    assert set(state) == {"pick", "many"}


async def test_pressing_what_is_not_there_makes_no_sense(slack: SlackSimulator, bot: Recorder) -> None:
    ts = await asked(slack, bot.client)
    with pytest.raises(ValueError, match="no control"):
        await slack.press("bob", general(slack), ts, "ask/no")
    with pytest.raises(ValueError, match="no option"):
        await slack.press("bob", general(slack), ts, "ask/pick", value="c")
    with pytest.raises(ValueError, match="nobody"):
        await slack.press("mallory", general(slack), ts, "ask/yes")


async def test_an_app_that_does_not_answer_is_waited_for_in_vain() -> None:
    settings = SlackSettings(rate_scale=0, ack_seconds=0.1)
    async with SlackSimulator(settings=settings) as slack, Recorder(slack) as bot:
        ts = await asked(slack, bot.client)
        with pytest.raises(TimeoutError):
            await slack.press("bob", general(slack), ts, "ask/yes")


async def test_a_response_url_answers_five_times(slack: SlackSimulator, bot: Recorder) -> None:
    caught, ts = catching(bot, "yes"), await asked(slack, bot.client)
    await slack.press("bob", general(slack), ts, "ask/yes")
    bodies = [
        {"text": "only you"},
        {"text": "all", "response_type": "in_channel"},
        {"text": "new", "replace_original": True},
        {"text": "", "colour": "red"},
        {"delete_original": True},
        {"text": "too many"},
    ]
    answers: list[tuple[int, str]] = []
    async with aiohttp.ClientSession() as session:
        for body in bodies:
            async with session.post(caught[0]["response_url"], json=body) as response:
                answers.append((response.status, (await response.json()).get("error", "")))
    assert answers == [(200, "")] * 3 + [(400, "invalid_arguments"), (200, ""), (404, "used_url")]
    messages = seen(slack).messages
    assert [(message.elements[0], message.visible_to) for message in messages] == [
        (messages[0].elements[0], "bob"),
        (messages[1].elements[0], None),
    ]


def offer_form(bot: Recorder) -> None:
    @bot.app.action("yes")
    async def _(ack: Any, body: dict[str, Any], client: AsyncWebClient) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=FORM)


async def test_a_form_is_opened_filled_in_and_sent(slack: SlackSimulator, bot: Recorder) -> None:
    sent: list[dict[str, Any]] = []

    @bot.app.view("form")
    async def _(ack: Any, view: dict[str, Any]) -> None:
        text = view["state"]["values"]["why"]["text"]["value"]
        if text == "no":
            await ack(response_action="errors", errors={"why": "say more"})
            return
        await ack()
        sent.append(view)

    offer_form(bot)
    await slack.press("bob", general(slack), await asked(slack, bot.client), "ask/yes")
    (form,) = await until(lambda: slack.view().forms)
    assert (form.person, form.title, form.submit_label) == ("bob", "Question", "Send")
    assert [(f.field_id, f.is_long, f.is_required) for f in form.fields] == [
        ("why/text", True, True),
        ("which/pick", False, False),
    ]
    with pytest.raises(ValueError, match="required"):
        await slack.submit("bob", form.form_id, {"which": "a"})
    with pytest.raises(ValueError, match="say more"):
        await slack.submit("bob", form.form_id, {"why/text": "no"})
    with pytest.raises(ValueError, match="alice has no form"):
        await slack.submit("alice", form.form_id, {"why": "x"})
    await slack.submit("bob", form.form_id, {"why/text": "because", "which": "a"})
    assert slack.view().forms == ()
    values = sent[0]["state"]["values"]
    assert values["why"]["text"] == {"type": "plain_text_input", "value": "because"}
    assert values["which"]["pick"]["selected_option"]["value"] == "a"
    assert sent[0]["private_metadata"] == "kept"


async def test_a_trigger_opens_one_form_and_not_for_long(slack: SlackSimulator, bot: Recorder) -> None:
    caught, ts = catching(bot, "yes"), await asked(slack, bot.client)
    await slack.press("bob", general(slack), ts, "ask/yes")
    trigger_id = caught[0]["trigger_id"]
    view: Any = bot.client.views_open
    broken = {**FORM, "title": plain("x" * 25)}
    answer = view(trigger_id=trigger_id, view=broken)
    assert await code(answer) == "invalid_arguments"
    await view(trigger_id=trigger_id, view=FORM)
    assert await code(view(trigger_id=trigger_id, view=FORM)) == "exchanged_trigger_id"
    assert await code(view(trigger_id="1.2.3", view=FORM)) == "invalid_trigger_id"
    slack.misbehave("expire_trigger")
    await slack.press("bob", general(slack), ts, "ask/yes")
    late = caught[1]["trigger_id"]
    assert await code(view(trigger_id=late, view=FORM)) == "expired_trigger_id"


async def test_an_open_form_can_be_changed_under_its_hash(slack: SlackSimulator, bot: Recorder) -> None:
    caught, ts = catching(bot, "yes"), await asked(slack, bot.client)
    await slack.press("bob", general(slack), ts, "ask/yes")
    opened = await bot.client.views_open(trigger_id=caught[0]["trigger_id"], view=FORM)
    changed = {**FORM, "title": plain("Changed")}
    update: Any = bot.client.views_update
    view_id, old = opened["view"]["id"], opened["view"]["hash"]
    await update(view_id=view_id, hash=old, view=changed)
    assert slack.view().forms[0].title == "Changed"
    assert await code(update(view_id=view_id, hash=old, view=FORM)) == "hash_conflict"
    assert await code(update(view_id="V0", view=FORM)) == "not_found"


async def test_a_command_is_answered_to_its_caller(slack: SlackSimulator, bot: Recorder) -> None:
    heard: list[dict[str, Any]] = []

    @bot.app.command("/agent")
    async def _(ack: Any, body: dict[str, Any], respond: Any) -> None:
        heard.append(body)
        await ack("on it")
        await respond("done", response_type="in_channel")

    await slack.command("alice", "general", "agent", {"text": "run  this"})
    assert heard[0]["command"] == "/agent"
    assert heard[0]["text"] == "run  this"
    await until(lambda: len(seen(slack).messages) == 2)
    first, second = sorted(seen(slack).messages, key=lambda message: message.visible_to or "")
    assert (first.visible_to, second.visible_to) == (None, "alice")
    with pytest.raises(ValueError, match="not supported in threads"):
        await slack.command("alice", "general", "agent", {}, thread_id=first.message_id)
    with pytest.raises(ValueError, match="not a valid command"):
        await slack.command("alice", "general", "/other", {})


async def test_a_session_is_stopped_by_the_platforms_own_button(slack: SlackSimulator, bot: Recorder) -> None:
    channel, root = general(slack), await slack.say("alice", "general", "work")
    with pytest.raises(ValueError, match="no session"):
        await slack.stop_session("alice", "general", root)
    status: Any = bot.client.agents_sessions_setStatus
    await status(channel_id=channel, thread_ts=root, status="processing")
    assert seen(slack).typing == ("threadhand is working…",)
    await slack.stop_session("alice", "general", root)
    await until(lambda: "agent_session_stopped" in bot.kinds())
    stopped = bot.events[-1]
    assert (stopped["thread_ts"], stopped["streaming_message_ts"]) == (root, [])
    await status(channel_id=channel, thread_ts=root, status="closed")
    assert seen(slack).typing == ()
    bad = status(channel_id=channel, thread_ts=root, status="busy")
    assert await code(bad) == "invalid_arguments"


async def test_the_status_ends_with_the_next_message(slack: SlackSimulator, bot: Recorder) -> None:
    channel, root = general(slack), await slack.say("alice", "general", "work")
    await bot.client.assistant_threads_setStatus(
        channel_id=channel, thread_ts=root, status="is thinking", loading_messages=["a"]
    )
    assert seen(slack).typing == ("threadhand is thinking",)
    await bot.client.chat_postMessage(channel=channel, thread_ts=root, text="done")
    assert seen(slack).typing == ()


async def test_the_home_is_published_and_opened(slack: SlackSimulator, bot: Recorder) -> None:
    alice = slack.member("alice").user_id
    home = {"type": "home", "blocks": [{"type": "divider"}]}
    await bot.client.views_publish(user_id=alice, view=home)
    await slack.open_app("alice", tab="home")
    await until(lambda: "app_home_opened" in bot.kinds())
    assert bot.events[-1]["view"]["type"] == "home"
    assert slack.view().forms == ()


async def test_an_assistant_thread_is_started(slack: SlackSimulator, bot: Recorder) -> None:
    root = await slack.open_assistant("alice")
    await until(lambda: "assistant_thread_started" in bot.kinds())
    thread = bot.events[-1]["assistant_thread"]
    assert (thread["user_id"], thread["thread_ts"]) == (slack.member("alice").user_id, root)
    await slack.say("alice", thread["channel_id"], "hi", thread_id=root)
    await until(lambda: bot.events[-1].get("thread_ts") == root)
    await bot.client.assistant_threads_setTitle(channel_id=thread["channel_id"], thread_ts=root, title="Greeting")
    prompts = [{"title": "a", "message": "b"}]
    where = {"channel_id": thread["channel_id"], "thread_ts": root}
    await bot.client.assistant_threads_setSuggestedPrompts(**where, prompts=prompts)
    many: Any = bot.client.assistant_threads_setSuggestedPrompts(**where, prompts=prompts * 5)
    assert await code(many) == "invalid_arguments"
