"""What Discord refuses in a modal, and what a person sees and sends of it."""

from simulator.discord.json_reading import Json, object_of, objects_of, text_of
from simulator.discord.rest.errors import FormErrors, Path
from simulator.discord.rules.component_tree import walk
from simulator.discord.rules.components import (
    ROW,
    SELECTS,
    STRING_SELECT,
    TEXT,
    TEXT_INPUT,
    Check,
    check_options,
    check_select,
    check_text,
)

LABEL, FILE_UPLOAD, RADIO_GROUP, CHECKBOX_GROUP, CHECKBOX = 18, 19, 21, 22, 23
_IN_LABEL = (TEXT_INPUT, *SELECTS, FILE_UPLOAD, RADIO_GROUP, CHECKBOX_GROUP, CHECKBOX)
FIELDS = frozenset(_IN_LABEL)


def check_modal(errors: FormErrors, modal: Json) -> None:
    check = Check(errors=errors)
    for name, maximum in (("title", 45), ("custom_id", 100)):
        if modal.get(name) is None:
            errors.required((name,))
        else:
            errors.length((name,), modal.get(name), maximum, 1)
    path: Path = ("components",)
    if not errors.size(path, modal.get("components"), 5, 1):
        return
    for where, component in check.members(path, modal.get("components"), (ROW, TEXT, LABEL)):
        if component.get("type") == TEXT:
            check_text(check, where, component)
        elif component.get("type") == ROW:
            _row(check, where, component)
        else:
            _label(check, where, component)


def _row(check: Check, path: Path, row: Json) -> None:
    path = (*path, "components")
    if not check.errors.size(path, row.get("components"), 1, 1):
        return
    for where, field in check.members(path, row.get("components"), (TEXT_INPUT,)):
        if field.get("label") is None:
            check.errors.required((*where, "label"))
        else:
            check.errors.length((*where, "label"), field.get("label"), 45, 1)
        _text_input(check, where, field)


def _label(check: Check, path: Path, label: Json) -> None:
    errors = check.errors
    if label.get("label") is None:
        errors.required((*path, "label"))
    else:
        errors.length((*path, "label"), label.get("label"), 45, 1)
    if label.get("description") is not None:
        errors.length((*path, "description"), label.get("description"), 100)
    where = (*path, "component")
    field = check.one(where, label.get("component"), _IN_LABEL)
    if field is None:
        return
    kind = field.get("type")
    if kind == TEXT_INPUT:
        if field.get("label"):
            message = "The label of a text input cannot be set inside a label component"
            errors.add((*where, "label"), "COMPONENT_LABEL_DUPLICATED", message)
        _text_input(check, where, field)
    elif kind in SELECTS:
        check_select(check, where, field, is_in_modal=True)
    else:
        _choice(check, where, field)


def _text_input(check: Check, path: Path, field: Json) -> None:
    errors = check.errors
    check.custom_id(path, field)
    errors.choice((*path, "style"), field.get("style"), (1, 2))
    for name, minimum in (("min_length", 0), ("max_length", 1)):
        if field.get(name) is not None:
            errors.number((*path, name), field.get(name), minimum, 4000)
    for name, maximum in (("value", 4000), ("placeholder", 100)):
        if field.get(name) is not None:
            errors.length((*path, name), field.get(name), maximum)


def _choice(check: Check, path: Path, field: Json) -> None:
    check.custom_id(path, field)
    kind = field.get("type")
    if kind == RADIO_GROUP:
        check_options(check, path, field, 10, 2)
    elif kind == CHECKBOX_GROUP:
        check_options(check, path, field, 10, 1)
    for name in ("min_values", "max_values"):
        if field.get(name) is not None:
            check.errors.number((*path, name), field.get(name), 0, 10)


def is_required(field: Json) -> bool:
    return field.get("type") != CHECKBOX and field.get("required") is not False


def fields_of(components: list[Json]) -> list[tuple[str, Json]]:
    """(label, field) of everything that a person fills in."""
    found: list[tuple[str, Json]] = []
    for component in walk(components):
        if component.get("type") == LABEL:
            found.append((text_of(component, "label"), object_of(component, "component")))
        elif component.get("type") == TEXT_INPUT and component.get("label"):
            found.append((text_of(component, "label"), component))
    return found


def submitted(components: list[Json], values: dict[str, str]) -> list[Json]:
    """The components of a submit: the same tree, holding what the person filled in."""
    done: list[Json] = []
    for component in components:
        body: Json = {"type": component.get("type"), "id": component.get("id")}
        if component.get("type") == ROW:
            body["components"] = submitted(objects_of(component, "components"), values)
        elif component.get("type") == LABEL:
            body["component"] = submitted([object_of(component, "component")], values)[0]
        elif component.get("type") in FIELDS:
            body |= _filled(component, values.get(text_of(component, "custom_id"), ""))
        done.append(body)
    return done


def _filled(field: Json, value: str) -> Json:
    body: Json = {"custom_id": field.get("custom_id")}
    match field.get("type"):
        case 4:
            body["value"] = value
        case 21:
            body["value"] = value or None
        case 23:
            body["value"] = value.lower() in ("true", "yes", "on", "1")
        case _:
            body["values"] = [part.strip() for part in value.split(",") if part.strip()]
    return body


def refuse_unfit(components: list[Json], values: dict[str, str]) -> None:
    """Raises ValueError for what Discord's own form would not let a person send."""
    fields = fields_of(components)
    unknown = set(values) - {text_of(field, "custom_id") for _, field in fields}
    if unknown:
        raise ValueError(f"the form has no field {', '.join(sorted(unknown))}")
    for label, field in fields:
        value = values.get(text_of(field, "custom_id"), "")
        if is_required(field) and not value:
            raise ValueError(f"the field {label!r} must be filled in")
        maximum = field.get("max_length")
        if isinstance(maximum, int) and len(value) > maximum:
            raise ValueError(f"the field {label!r} holds at most {maximum} characters")
        if field.get("type") in (STRING_SELECT, RADIO_GROUP, CHECKBOX_GROUP) and value:
            known = {text_of(option, "value") for option in objects_of(field, "options")}
            chosen = [value] if field.get("type") == RADIO_GROUP else value.split(",")
            if not {part.strip() for part in chosen} <= known:
                raise ValueError(f"the field {label!r} has no option {value!r}")
