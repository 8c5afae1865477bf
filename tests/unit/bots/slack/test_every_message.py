"""Every kind of message and event in Slack's documentation: what people say is kept, and nothing else starts a run."""

from collections.abc import Iterator

import pytest

from bots.inbound.actions import CommandCalled
from bots.slack.events.parse import (
    Ignored,
    ParseContext,
    find_reacted_message,
    find_user_ids,
    parse_event,
    strip_content,
)
from bots.slack.web_api.client import Identity
from core.domain.actions import AskAnswered, IncomingMessage, MessageDeleted, MessageEdited, StopRequested
from core.domain.json import JsonObject
from core.domain.messages import JsonValue

IDENTITY = Identity(team_id="T1", user_id="U0", bot_id="B0")
KNOWN = ParseContext(identity=IDENTITY, names={"U1": "alice"})
ROOT, REPLY = "1700000000.000100", "1700000002.000100"
FILE: JsonObject = {"id": "F1", "name": "a.m4a", "mimetype": "audio/mp4", "subtype": "slack_audio"}
APP: JsonObject = {"bot_id": "B9", "app_id": "A9", "username": "Alerts", "user": None}
HUDDLE: JsonObject = {"id": "R1", "channels": ["C1"], "participants": ["U1"], "date_end": 0}


def said(subtype: str | None, text: str = "<@U0> count", **more: JsonValue) -> JsonObject:
    event: JsonObject = {"type": "message", "user": "U1", "text": text, "ts": REPLY, "channel": "C1"}
    return {**event, "subtype": subtype, "channel_type": "channel", "event_ts": REPLY, **more}


def changed(subtype: str | None = None, *, before: str = "<@U0> count", **more: JsonValue) -> JsonObject:
    was = said(subtype, before)
    now = {**was, "edited": {"user": "U1", "ts": "1700000009.000000"}, "text": "<@U0> sum", **more}
    event: JsonObject = {"type": "message", "subtype": "message_changed", "hidden": True}
    return {**event, "channel": "C1", "message": now, "previous_message": was}


SAID = {
    "plain": said(None),
    "me_message": said("me_message"),
    "thread_broadcast": said("thread_broadcast", thread_ts=ROOT, root=said(None)),
    "file_share": said("file_share", files=[FILE], upload=False),
    "voice clip": said("file_share", "", channel="D1", channel_type="im", files=[FILE]),
    "mention": {**said(None), "type": "app_mention", "channel_type": None},
    "mention of an app": {**said("bot_message", **APP), "type": "app_mention"},
    "direct": said(None, "count", channel="D1", channel_type="im"),
    "direct without its kind": said(None, "count", channel="D1", channel_type=None),
    "direct in the app's tab": said(None, "count", channel="D1", channel_type="app_home"),
    "group": said(None, channel="G1", channel_type="mpim"),
    "reply": said(None, "go on", thread_ts=ROOT, parent_user_id="U0"),
    "reply in a huddle": said(None, thread_ts=ROOT, root=said("huddle_thread", "")),
    "workflow": said("bot_message", **APP),
    "app with a user": said(None, bot_id="B9", app_id="A9", bot_profile={"id": "B9", "name": "x"}),
    "forward": said(None, attachments=[{"is_share": True, "text": "look"}]),
}
NOTICES = """
    assistant_app_thread bot_add bot_disable bot_enable bot_remove channel_archive channel_canvas_updated
    channel_convert_to_private channel_convert_to_public channel_join channel_leave channel_name
    channel_posting_permissions channel_purpose channel_topic channel_unarchive document_comment_root
    document_mention ekm_access_denied file_comment file_mention group_archive group_join group_leave group_name
    group_purpose group_topic group_unarchive huddle_thread joiner_notification joiner_notification_for_inviter
    list_record_comment message_replied pinned_item reminder_add reminder_delete reply_broadcast sh_room_created
    sh_room_shared slackbot_response tombstone unpinned_item something_new
"""
NOT_SAID = {
    **{name: said(name, room=HUDDLE, inviter="U1", topic="x", hidden=True) for name in NOTICES.split()},
    **{f"{name} as a mention": {**said(name), "type": "app_mention"} for name in NOTICES.split()},
    "our own": said(None, user="U0"),
    "our own in a direct message": said(None, user="U0", channel="D1", channel_type="im"),
    "Slackbot": said(None, user="USLACKBOT", channel="D1", channel_type="im"),
    "an app that mentions no one": said("bot_message", "all is red", **APP),
    "an app in a direct message": said("bot_message", channel="D1", channel_type="im", **APP),
    "a preview": changed(before="<@U0> sum", edited=None, attachments=[{"from_url": "x"}]),
    "a reply count": changed(before="<@U0> sum", edited=None, reply_count=1),
    "an edit of ours": changed(user="U0"),
    "an edit by an app": changed("bot_message", **APP),
    "a removed reaction": {"type": "reaction_removed", "user": "U1", "reaction": "x"},
    "a reaction without a meaning": {"type": "reaction_added", "user": "U1", "reaction": "eyes"},
}
EVENTS = """
    app_home_opened app_rate_limited app_requested assistant_thread_context_changed assistant_thread_started
    call_rejected channel_archive channel_created channel_deleted channel_history_changed channel_id_changed
    channel_left channel_rename channel_shared channel_unarchive channel_unshared dnd_updated_user emoji_changed
    entity_details_requested file_change file_created file_deleted file_public file_shared file_unshared
    function_executed grid_migration_finished group_left im_created invite_requested link_shared
    member_joined_channel member_left_channel message_metadata_posted pin_added shared_channel_invite_received
    star_added subteam_updated team_join team_rename user_change user_huddle_changed workflow_step_execute
    something_new
"""
REACTION: JsonObject = {"type": "message", "channel": "C1", "ts": REPLY}
OTHERS: dict[str, tuple[JsonObject, type]] = {
    "an edit": (changed(), MessageEdited),
    "an edit of a broadcast": (changed("thread_broadcast", thread_ts=ROOT), MessageEdited),
    "an edit of a file's words": (changed("file_share", files=[FILE]), MessageEdited),
    "a deletion": (said("message_deleted", user=None, deleted_ts=REPLY, previous_message=said(None)), MessageDeleted),
    "the tombstone of a root": (changed("tombstone", user="USLACKBOT"), MessageDeleted),
    "a cross": ({"type": "reaction_added", "user": "U1", "reaction": "x", "item": REACTION}, StopRequested),
    "a thumb": (
        {"type": "reaction_added", "user": "U1", "reaction": "+1::skin-tone-3", "item": REACTION, "item_user": "U0"},
        AskAnswered,
    ),
    "the stop button": (
        {"type": "agent_session_stopped", "channel": "C1", "thread_ts": ROOT, "user": "U1"},
        StopRequested,
    ),
    "a command": (said(None, "<@U0> status"), CommandCalled),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_to_the_agent_is_kept(name: str):
    assert isinstance(parse_event(SAID[name], KNOWN), IncomingMessage)


@pytest.mark.parametrize("name", NOT_SAID)
def test_what_nobody_says_to_the_agent_starts_nothing(name: str):
    assert isinstance(parse_event(NOT_SAID[name], KNOWN), Ignored)


@pytest.mark.parametrize("name", EVENTS.split())
def test_other_events_start_nothing(name: str):
    assert isinstance(parse_event({**said(None), "type": name}, KNOWN), Ignored)


@pytest.mark.parametrize("name", OTHERS)
def test_what_people_do_with_messages_is_kept(name: str):
    event, kind = OTHERS[name]
    assert isinstance(parse_event(event, KNOWN), kind)


def variants(value: JsonValue) -> Iterator[JsonValue]:
    """Yields the value with one field, at any depth, missing or of another type."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {name: one for name, one in value.items() if name != key}
            yield from ({**value, key: other} for other in (None, 7, True, "x", [], [None], {}))
            yield from ({**value, key: other} for other in variants(inner))
    elif isinstance(value, list):
        yield from ([other, *value[1:]] for one in value[:1] for other in variants(one))


def test_no_field_of_another_type_breaks_the_parser():
    events = (*SAID.values(), *NOT_SAID.values(), *(event for event, _kind in OTHERS.values()))
    for event in events:
        for changed_event in variants(event):
            assert isinstance(changed_event, dict)
            find_user_ids(changed_event)
            find_reacted_message(changed_event, IDENTITY)
            parse_event(strip_content(changed_event, IDENTITY), KNOWN)
            parse_event(changed_event, KNOWN)
