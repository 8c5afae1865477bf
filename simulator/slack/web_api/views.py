"""views.open, push, update and publish."""

import secrets
import time

from simulator.slack.block_kit.elements import plain_text
from simulator.slack.block_kit.message_rules import check_message_blocks, check_view_blocks
from simulator.slack.block_kit.schema import Flaw, anything, boolean, string, table
from simulator.slack.events.payloads import Payload, Refused, as_payload
from simulator.slack.shapes import view_form
from simulator.slack.web_api.call import Call, Method, invalid_argument
from simulator.slack.world import OpenView, Trigger, Workspace

_STACK_MAX = 3
_COMMON = {
    "type": string(20),
    "blocks": anything,
    "private_metadata": string(3000, shortest=0),
    "callback_id": string(255, shortest=0),
    "external_id": string(255, shortest=0),
}
_MODAL = table(
    {
        **_COMMON,
        "title": plain_text(24),
        "submit": plain_text(24),
        "close": plain_text(24),
        "clear_on_close": boolean,
        "notify_on_close": boolean,
        "submit_disabled": boolean,
    },
    "type",
    "title",
    "blocks",
)
_HOME = table(_COMMON, "type", "blocks")


def checked_view(value: object, kind: str) -> Payload:
    """The content of a view of this kind (modal or home). Raises Refused `invalid_arguments` with the place."""
    content = as_payload(value)
    if content is None:
        raise invalid_argument("must be an object [json-pointer:/view]")
    if content.get("type") != kind:
        raise invalid_argument(f"unsupported type: {content.get('type')} [json-pointer:/view/type]")
    try:
        (_MODAL if kind == "modal" else _HOME)(content)
    except Flaw as flaw:
        raise Refused("invalid_arguments", messages=(flaw.message("view"),)) from None
    blocks = check_view_blocks(content["blocks"])
    has_input = any(block["type"] == "input" for block in blocks)
    if kind == "modal" and has_input and "submit" not in content:
        raise invalid_argument("missing required field: submit [json-pointer:/view]")
    return content


def _trigger(call: Call) -> Trigger:
    trigger = call.workspace.triggers.get(call.text("trigger_id"))
    if trigger is None:
        raise Refused("invalid_trigger_id")
    if time.monotonic() > trigger.expires_at:
        raise Refused("expired_trigger_id")
    if trigger.is_used:
        raise Refused("exchanged_trigger_id")
    return trigger


def show_view(workspace: Workspace, user_id: str, content: Payload, *, previous: OpenView | None = None) -> OpenView:
    """Opens a modal for a person, on top of another one where it is pushed."""
    view_id = workspace.new_id("V")
    view = OpenView(
        view_id=view_id,
        user_id=user_id,
        content=content,
        version=new_hash(),
        root_view_id=previous.root_view_id if previous is not None else view_id,
        previous_view_id=previous.view_id if previous is not None else None,
    )
    workspace.views[view_id] = view
    workspace.changed()
    return view


def new_hash() -> str:
    """The hash that marks one state of a view."""
    return f"{int(time.time())}.{secrets.token_hex(4)}"


def _check_external_id(call: Call, content: Payload) -> None:
    external_id = content.get("external_id")
    taken = (view.content.get("external_id") for view in call.workspace.views.values())
    if external_id and external_id in taken:
        raise Refused("duplicate_external_id")


def open_view(call: Call) -> Payload:
    content = checked_view(call.arguments.get("view"), "modal")
    trigger = _trigger(call)
    _check_external_id(call, content)
    trigger.is_used = True
    close_views(call.workspace, trigger.user_id)
    view = show_view(call.workspace, trigger.user_id, content)
    return {"view": view_form(call.workspace, view)}


def close_views(workspace: Workspace, user_id: str) -> None:
    """Closes every modal of a person."""
    kept = workspace.views.values()
    for view in [view for view in kept if view.user_id == user_id and not view.is_home]:
        del workspace.views[view.view_id]
    workspace.changed()


def push_view(call: Call) -> Payload:
    content = checked_view(call.arguments.get("view"), "modal")
    trigger = _trigger(call)
    stack = [view for view in call.workspace.views.values() if view.user_id == trigger.user_id and not view.is_home]
    if not stack:
        raise Refused("not_found")
    if len(stack) >= _STACK_MAX:
        raise Refused("push_limit_reached")
    _check_external_id(call, content)
    trigger.is_used = True
    view = show_view(call.workspace, trigger.user_id, content, previous=stack[-1])
    return {"view": view_form(call.workspace, view)}


def update_view(call: Call) -> Payload:
    view = _named_view(call)
    content = checked_view(call.arguments.get("view"), "home" if view.is_home else "modal")
    expected = call.text("hash")
    if expected and expected != view.version:
        raise Refused("hash_conflict")
    view.content, view.version = content, new_hash()
    call.workspace.changed()
    return {"view": view_form(call.workspace, view)}


def _named_view(call: Call) -> OpenView:
    view_id, external_id = call.text("view_id"), call.text("external_id")
    if not view_id and not external_id:
        raise invalid_argument("missing required field: view_id")
    for view in call.workspace.views.values():
        if view.view_id == view_id or (external_id and view.content.get("external_id") == external_id):
            return view
    raise Refused("not_found")


def publish_view(call: Call) -> Payload:
    workspace, user_id = call.workspace, call.text("user_id")
    content = checked_view(call.arguments.get("view"), "home")
    if user_id not in workspace.members:
        raise Refused("user_not_found")
    if not workspace.settings.has_home:
        raise Refused("not_enabled")
    homes = workspace.views.values()
    view = next((kept for kept in homes if kept.is_home and kept.user_id == user_id), None)
    if view is None:
        view = show_view(workspace, user_id, content)
        view.is_home = True
    elif call.text("hash", view.version) != view.version:
        raise Refused("hash_conflict")
    view.content, view.version = content, new_hash()
    workspace.changed()
    return {"view": view_form(workspace, view)}


def validate(call: Call) -> Payload:
    """blocks.validate: says of blocks, or of a view, whether they would be accepted."""
    given = {key: call.arguments[key] for key in ("blocks", "view") if call.arguments.get(key)}
    if len(given) != 1:
        raise invalid_argument("exactly one of blocks, message and view")
    try:
        if "view" in given:
            content = as_payload(given["view"]) or {}
            checked_view(content, "home" if content.get("type") == "home" else "modal")
        else:
            check_message_blocks(given["blocks"])
    except Refused as refusal:
        kind = "invalid_view" if "view" in given else "invalid_blocks"
        told = refusal.messages or (refusal.code,)
        raise Refused(kind, errors=[{"message": one} for one in told]) from None
    return {}


METHODS = {
    "blocks.validate": Method(run=validate, tier="t3"),
    "views.open": Method(run=open_view, tier="t4", required=("trigger_id", "view")),
    "views.publish": Method(run=publish_view, tier="t4", required=("user_id", "view")),
    "views.push": Method(run=push_view, tier="t4", required=("trigger_id", "view")),
    "views.update": Method(run=update_view, tier="t4", required=("view",)),
}
