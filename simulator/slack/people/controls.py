"""The controls of a message: finding one by its id, and what pressing it sends."""

from dataclasses import dataclass
from typing import Final

from simulator.slack.block_kit.message_rules import controls_of
from simulator.slack.events.payloads import Payload, as_payload, as_payloads
from simulator.slack.people.block_view import options_of

_ONE_OPTION: Final = ("static_select", "radio_buttons", "overflow", "external_select")
_MANY_OPTIONS: Final = ("multi_static_select", "checkboxes", "multi_external_select")
_SINGLE: Final = {
    "users_select": "selected_user",
    "conversations_select": "selected_conversation",
    "channels_select": "selected_channel",
    "datepicker": "selected_date",
    "timepicker": "selected_time",
    "plain_text_input": "value",
    "email_text_input": "value",
    "url_text_input": "value",
    "number_input": "value",
}
_LISTS: Final = {
    "multi_users_select": "selected_users",
    "multi_conversations_select": "selected_conversations",
    "multi_channels_select": "selected_channels",
}
_STATELESS: Final = ("button", "overflow", "workflow_button", "feedback_buttons", "icon_button")


@dataclass(frozen=True, slots=True)
class Control:
    block_id: str
    element: Payload
    part: str = ""

    @property
    def action_id(self) -> str:
        return str(self.element["action_id"])

    @property
    def has_state(self) -> bool:
        return self.element["type"] not in _STATELESS


def all_controls(blocks: list[Payload]) -> list[Control]:
    """Every control of these blocks, in order."""
    found: list[Control] = []
    for block in blocks:
        found.extend(Control(block["block_id"], element) for element in controls_of(block))
        found.extend(all_controls(as_payloads(block.get("child_blocks"))))
    return found


def find_control(blocks: list[Payload], control_id: str) -> Control:
    """The control with this id; raises ValueError where it is gone."""
    name, _, part = control_id.partition("#")
    for control in all_controls(blocks):
        if f"{control.block_id}/{control.action_id}" == name:
            return Control(control.block_id, control.element, part)
    raise ValueError(f"there is no control {control_id} in this message")


def chosen(element: Payload, value: str, part: str = "") -> Payload:
    """The fields by which an action or a form's state tells what was chosen. Raises ValueError for no such option."""
    kind = element["type"]
    if kind in _ONE_OPTION:
        return {"selected_option": _option(element, value) if value else None}
    if kind in _MANY_OPTIONS:
        values = [part for part in value.split(",") if part]
        return {"selected_options": [_option(element, entry) for entry in values]}
    if kind in _SINGLE:
        return {_SINGLE[kind]: value or None}
    if kind in _LISTS:
        return {_LISTS[kind]: [entry for entry in value.split(",") if entry]}
    if kind == "datetimepicker":
        return {"selected_date_time": int(value) if value else None}
    if kind == "feedback_buttons":
        pressed = as_payload(element.get(part))
        if pressed is None:
            raise ValueError("a feedback control is pressed as positive_button or negative_button")
        return {"text": pressed["text"], "value": pressed["value"]}
    return {key: element[key] for key in ("text", "value", "style", "icon") if key in element}


def _option(element: Payload, value: str) -> Payload:
    if element["type"].endswith("external_select"):
        return {"text": {"type": "plain_text", "text": value, "emoji": True}, "value": value}
    for option in options_of(element):
        if option["value"] == value:
            return option
    raise ValueError(f"there is no option {value!r}")


def initial(element: Payload) -> Payload:
    """The state of a control that nobody has touched."""
    kind = element["type"]
    if kind in _ONE_OPTION:
        return {"selected_option": element.get("initial_option")}
    if kind in _MANY_OPTIONS:
        return {"selected_options": element.get("initial_options", [])}
    if kind in _SINGLE:
        name = _SINGLE[kind]
        key = name.replace("selected", "initial") if name != "value" else "initial_value"
        return {name: element.get(key)}
    if kind in _LISTS:
        return {_LISTS[kind]: element.get(_LISTS[kind].replace("selected", "initial"), [])}
    return {}


def state_of(blocks: list[Payload], touched: dict[str, Payload]) -> Payload:
    """The `state.values` of a message or view: each control that keeps a choice, as it stands."""
    values: dict[str, Payload] = {}
    for control in all_controls(blocks):
        if control.has_state:
            key = f"{control.block_id}/{control.action_id}"
            kept = touched.get(key) or initial(control.element)
            form = {"type": control.element["type"], **kept}
            values.setdefault(control.block_id, {})[control.action_id] = form
    return dict(values)
