"""Block Kit's text objects, options and interactive elements: fields and limits."""

from typing import Final

from simulator.slack.block_kit.schema import (
    Check,
    address,
    any_key_of,
    anything,
    array,
    boolean,
    both,
    by_type,
    integer,
    one_of,
    string,
    table,
)

TYPE: Final[Check] = string(50)
_ACTION_ID = string(255)
_BUTTON_STYLE = one_of("primary", "danger")


def plain_text(longest: int, *, shortest: int = 1) -> Check:
    """A `plain_text` object."""
    fields = {"type": TYPE, "text": string(longest, shortest=shortest), "emoji": boolean}
    return by_type({"plain_text": table(fields, "text")})


def mrkdwn(longest: int, *, shortest: int = 1) -> Check:
    """A `mrkdwn` object."""
    fields = {"type": TYPE, "text": string(longest, shortest=shortest), "verbatim": boolean}
    return by_type({"mrkdwn": table(fields, "text")})


def any_text(longest: int, *, shortest: int = 1) -> Check:
    """A `plain_text` or `mrkdwn` object."""
    text = string(longest, shortest=shortest)
    return by_type(
        {
            "plain_text": table({"type": TYPE, "text": text, "emoji": boolean}, "text"),
            "mrkdwn": table({"type": TYPE, "text": text, "verbatim": boolean}, "text"),
        }
    )


CONFIRM = table(
    {
        "title": plain_text(100),
        "text": any_text(300),
        "confirm": plain_text(30),
        "deny": plain_text(30),
        "style": _BUTTON_STYLE,
    },
    "title",
    "text",
    "confirm",
    "deny",
)


def _option(text: Check, **more: Check) -> Check:
    fields = {"text": text, "value": string(150), "description": any_text(75), **more}
    return table(fields, "text", "value")


_CHOICE = _option(plain_text(75))
_RICH_CHOICE = _option(any_text(75))
_MENU_CHOICE = _option(plain_text(75), url=address())
_GROUP = table({"label": plain_text(75), "options": array(_CHOICE, most=100)}, "label", "options")
_FILE_REFERENCE = both(table({"id": string(100), "url": address()}), any_key_of("id", "url", is_exclusive=True))


def _element(fields: dict[str, Check], *required: str) -> Check:
    return table({"type": TYPE, "action_id": _ACTION_ID, **fields}, *required)


def _picker(fields: dict[str, Check], *required: str) -> Check:
    common = {"placeholder": plain_text(150), "confirm": CONFIRM, "focus_on_load": boolean}
    return _element({**common, **fields}, *required)


def _input(fields: dict[str, Check]) -> Check:
    trigger = one_of("on_enter_pressed", "on_character_entered")
    config = table({"trigger_actions_on": array(trigger, most=2)})
    common = {"placeholder": plain_text(150), "focus_on_load": boolean}
    return _element({**common, "dispatch_action_config": config, **fields})


def _with_choices(fields: dict[str, Check]) -> Check:
    choices = {"options": array(_CHOICE, most=100), "option_groups": array(_GROUP, most=100)}
    return both(_picker({**choices, **fields}), any_key_of("options", "option_groups", is_exclusive=True))


_MOST = integer(1, 1000)
_IDS = array(string(50), most=100, least=0)
_BUTTON = _element(
    {
        "text": plain_text(75),
        "url": address(),
        "value": string(2000, shortest=0),
        "style": _BUTTON_STYLE,
        "confirm": CONFIRM,
        "accessibility_label": string(75),
        "agent_prompt": string(4000),
        "agent_prompt_display": anything,
        "visible_to_user_ids": _IDS,
    },
    "text",
)
IMAGE_ELEMENT = both(
    table({"type": TYPE, "image_url": address(), "alt_text": string(2000), "slack_file": _FILE_REFERENCE}, "alt_text"),
    any_key_of("image_url", "slack_file", is_exclusive=True),
)
_FEEDBACK = table({"text": plain_text(75), "value": string(2000), "accessibility_label": string(75)}, "text", "value")
_CONVERSATIONS = {
    "filter": table(
        {
            "include": array(one_of("im", "mpim", "private", "public"), most=4),
            "exclude_external_shared_channels": boolean,
            "exclude_bot_users": boolean,
        }
    ),
    "default_to_current_conversation": boolean,
}

PICKERS: dict[str, Check] = {
    "button": _BUTTON,
    "static_select": _with_choices({"initial_option": _CHOICE}),
    "multi_static_select": _with_choices({"initial_options": array(_CHOICE, most=100), "max_selected_items": _MOST}),
    "external_select": _picker({"initial_option": _CHOICE, "min_query_length": integer(0, 100)}),
    "multi_external_select": _picker(
        {"initial_options": array(_CHOICE, most=100), "min_query_length": integer(0, 100), "max_selected_items": _MOST}
    ),
    "users_select": _picker({"initial_user": string(50)}),
    "multi_users_select": _picker({"initial_users": _IDS, "max_selected_items": _MOST}),
    "conversations_select": _picker(
        {"initial_conversation": string(50), "response_url_enabled": boolean, **_CONVERSATIONS}
    ),
    "multi_conversations_select": _picker(
        {"initial_conversations": _IDS, "max_selected_items": _MOST, **_CONVERSATIONS}
    ),
    "channels_select": _picker({"initial_channel": string(50), "response_url_enabled": boolean}),
    "multi_channels_select": _picker({"initial_channels": _IDS, "max_selected_items": _MOST}),
    "overflow": _element({"options": array(_MENU_CHOICE, most=5), "confirm": CONFIRM}, "options"),
    "datepicker": _picker({"initial_date": string(10)}),
    "timepicker": _picker({"initial_time": string(5), "timezone": string(100)}),
    "datetimepicker": _picker({"initial_date_time": integer(1_000_000_000, 9_999_999_999)}),
    "checkboxes": _picker(
        {"options": array(_RICH_CHOICE, most=10), "initial_options": array(_RICH_CHOICE, most=10)}, "options"
    ),
    "radio_buttons": _picker({"options": array(_RICH_CHOICE, most=10), "initial_option": _RICH_CHOICE}, "options"),
    "workflow_button": _element(
        {"text": plain_text(75), "workflow": anything, "style": _BUTTON_STYLE, "accessibility_label": string(75)},
        "text",
        "workflow",
    ),
}
INPUTS: dict[str, Check] = {
    **{kind: rule for kind, rule in PICKERS.items() if kind not in ("button", "overflow")},
    "plain_text_input": _input(
        {
            "initial_value": string(3000, shortest=0),
            "multiline": boolean,
            "min_length": integer(0, 3000),
            "max_length": integer(1, 3000),
        }
    ),
    "rich_text_input": _input({"initial_value": anything, "min_lines": _MOST, "max_lines": _MOST}),
    "email_text_input": _input({"initial_value": string(3000)}),
    "url_text_input": _input({"initial_value": string(3000)}),
    "number_input": _input(
        {
            "initial_value": string(100),
            "is_decimal_allowed": boolean,
            "min_value": string(100),
            "max_value": string(100),
        }
    ),
    "file_input": _element({"filetypes": array(string(50), most=100), "max_files": integer(1, 10)}),
}
CONTEXT_ACTIONS: dict[str, Check] = {
    "feedback_buttons": _element(
        {"positive_button": _FEEDBACK, "negative_button": _FEEDBACK}, "positive_button", "negative_button"
    ),
    "icon_button": _element(
        {
            "icon": one_of("trash"),
            "text": plain_text(75),
            "value": string(2000),
            "accessibility_label": string(75),
            "visible_to_user_ids": _IDS,
            "confirm": CONFIRM,
        },
        "icon",
        "text",
    ),
}
ACCESSORIES: dict[str, Check] = {**PICKERS, "image": IMAGE_ELEMENT}
