"""Modals as forms of the page, and what a person filled in as the state of a view."""

from simulator.slack.events.payloads import Payload, as_payloads
from simulator.slack.people.block_view import options_of
from simulator.slack.people.controls import all_controls, chosen, state_of
from simulator.slack.world import OpenView, Workspace
from simulator.view import FormField, SeenForm, SelectOption


def open_forms(workspace: Workspace) -> tuple[SeenForm, ...]:
    """The modals that people see: of a stack only the one on top."""
    views = workspace.views.values()
    covered = {view.previous_view_id for view in views}
    return tuple(_form(workspace, view) for view in views if not view.is_home and view.view_id not in covered)


def _form(workspace: Workspace, view: OpenView) -> SeenForm:
    content = view.content
    submit = content.get("submit")
    return SeenForm(
        form_id=view.view_id,
        person=workspace.members[view.user_id].name,
        title=content["title"]["text"],
        fields=tuple(_field(block) for block in as_payloads(content["blocks"]) if _is_input(block)),
        submit_label=submit["text"] if submit else "Submit",
    )


def _is_input(block: Payload) -> bool:
    return block["type"] == "input"


def _field_id(block: Payload) -> str:
    return f"{block['block_id']}/{block['element']['action_id']}"


def _field(block: Payload) -> FormField:
    element = block["element"]
    return FormField(
        field_id=_field_id(block),
        label=block["label"]["text"],
        is_long=bool(element.get("multiline")),
        is_required=not block.get("optional", False),
        options=tuple(
            SelectOption(value=option["value"], label=option["text"]["text"]) for option in options_of(element)
        ),
    )


def read_form(view: OpenView, values: dict[str, str]) -> dict[str, Payload]:
    """What was filled in, by control; fields may be named by their id or their block's id.

    Raises ValueError for a field that is missing, unknown, too short or too long.
    """
    inputs = [block for block in as_payloads(view.content["blocks"]) if _is_input(block)]
    names = {_field_id(block) for block in inputs} | {block["block_id"] for block in inputs}
    unknown = set(values) - names
    if unknown:
        raise ValueError(f"the form has no field {', '.join(sorted(unknown))}")
    touched: dict[str, Payload] = {}
    for block in inputs:
        key = _field_id(block)
        value = values.get(key, values.get(block["block_id"]))
        label = block["label"]["text"]
        if value:
            _check_length(block["element"], value, label)
            touched[key] = chosen(block["element"], value)
        elif value == "" or not _has_initial(block):
            if not block.get("optional", False):
                raise ValueError(f"{label} is required")
            touched[key] = chosen(block["element"], "")
    return touched


def _has_initial(block: Payload) -> bool:
    return any(key.startswith("initial_") for key in block["element"])


def _check_length(element: Payload, value: str, label: str) -> None:
    if element["type"] != "plain_text_input":
        return
    if len(value) < element.get("min_length", 0):
        raise ValueError(f"{label} needs at least {element['min_length']} characters")
    if len(value) > element.get("max_length", 3000):
        raise ValueError(f"{label} takes at most {element.get('max_length', 3000)} characters")


def submitted_values(view: OpenView, touched: dict[str, Payload]) -> Payload:
    """The `state.values` of a submission."""
    blocks = as_payloads(view.content["blocks"])
    known = {f"{control.block_id}/{control.action_id}" for control in all_controls(blocks)}
    return state_of(blocks, {key: kept for key, kept in touched.items() if key in known})
