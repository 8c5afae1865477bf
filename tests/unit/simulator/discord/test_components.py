"""The rules of components: what Discord would refuse is refused, at the right field, with the right code."""

import pytest

from simulator.discord.json_reading import Json
from simulator.discord.rest.errors import FormErrors
from simulator.discord.rules.components import check_components
from simulator.discord.rules.modals import check_modal


def codes(tree: object) -> list[str]:
    """Every code in a tree of errors."""
    assert isinstance(tree, dict)
    own = [error["code"] for error in tree.get("_errors", ())]
    return own + [code for key, node in tree.items() if key != "_errors" for code in codes(node)]


def checked(components: object, *, is_v2: bool = True, filenames: tuple[str, ...] = ()) -> list[str]:
    errors = FormErrors()
    check_components(errors, components, is_v2=is_v2, filenames=frozenset(filenames))
    return codes(errors.tree)


def row(*children: Json) -> Json:
    return {"type": 1, "components": list(children)}


def button(custom_id: object = "b", **more: object) -> Json:
    return {"type": 2, "style": 2, "label": "Go", "custom_id": custom_id, **more}


def select(*values: str, **more: object) -> Json:
    options = [{"label": value, "value": value} for value in values]
    return {"type": 3, "custom_id": "s", "options": options, **more}


def text(content: str = "hello") -> Json:
    return {"type": 10, "content": content}


BAD = [
    ([text("")], "BASE_TYPE_BAD_LENGTH"),
    ([text("x" * 4001)], "BASE_TYPE_BAD_LENGTH"),
    ([text("x" * 2001), text("x" * 2000)], "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED"),
    ([text() for _ in range(41)], "COMPONENT_MAX_TOTAL_COMPONENTS_EXCEEDED"),
    ([{"type": 99}], "UNION_TYPE_CHOICES"),
    ([button()], "UNION_TYPE_CHOICES"),
    ([row()], "BASE_TYPE_BAD_LENGTH"),
    ([row(*[button(str(n)) for n in range(6)])], "BASE_TYPE_BAD_LENGTH"),
    ([row(button(), select("a"))], "COMPONENT_LAYOUT_WIDTH_EXCEEDED"),
    ([row(button("a"), button("a"))], "COMPONENT_CUSTOM_ID_DUPLICATED"),
    ([row(button("x" * 101))], "BASE_TYPE_BAD_LENGTH"),
    ([row(button(label="x" * 81))], "BASE_TYPE_MAX_LENGTH"),
    ([row(button(label=None))], "BUTTON_COMPONENT_LABEL_OR_EMOJI_REQUIRED"),
    ([row({"type": 2, "style": 5, "label": "x", "url": "nowhere"})], "URL_TYPE_INVALID_URL"),
    ([row(select())], "BASE_TYPE_BAD_LENGTH"),
    ([row(select(*map(str, range(26))))], "BASE_TYPE_BAD_LENGTH"),
    ([row(select("a", "a"))], "SELECT_COMPONENT_OPTION_VALUE_DUPLICATED"),
    ([row(select("x" * 101))], "BASE_TYPE_BAD_LENGTH"),
    ([row(select("a", placeholder="x" * 151))], "BASE_TYPE_MAX_LENGTH"),
    ([row(select("a", max_values=2))], "SELECT_COMPONENT_MAX_VALUES_TOO_MANY"),
    ([{"type": 17, "components": [{"type": 17, "components": [text()]}]}], "UNION_TYPE_CHOICES"),
    ([{"type": 17, "components": []}], "BASE_TYPE_REQUIRED"),
    ([{"type": 9, "components": [text()]}], "BASE_TYPE_REQUIRED"),
    ([{"type": 12, "items": []}], "BASE_TYPE_BAD_LENGTH"),
    (
        [{"type": 12, "items": [{"media": {"url": "attachment://no.png"}}]}],
        "UNFURLED_MEDIA_ITEM_REFERENCED_ATTACHMENT_NOT_FOUND",
    ),
    ([{"type": 13, "file": {"url": "https://example.org/a"}}], "URL_TYPE_INVALID_SCHEME"),
]


@pytest.mark.parametrize(("components", "code"), BAD)
def test_what_discord_refuses(components: object, code: str) -> None:
    assert code in checked(components)


def test_a_legacy_message_holds_rows_alone_and_five_of_them() -> None:
    assert checked([text()], is_v2=False) == ["UNION_TYPE_CHOICES"]
    assert checked([row(button(str(n))) for n in range(5)], is_v2=False) == []
    assert "BASE_TYPE_BAD_LENGTH" in checked([row(button(str(n))) for n in range(6)], is_v2=False)
    assert checked([], is_v2=False) == []


def modal(*components: Json, **more: object) -> list[str]:
    errors = FormErrors()
    check_modal(errors, {"title": "T", "custom_id": "m", "components": list(components), **more})
    return codes(errors.tree)


def label(component: Json, **more: object) -> Json:
    return {"type": 18, "label": "Name", "component": component, **more}


def field(**more: object) -> Json:
    return {"type": 4, "custom_id": "f", "style": 1, **more}


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (modal(), "BASE_TYPE_BAD_LENGTH"),
        (modal(*[label(field(custom_id=str(n))) for n in range(6)]), "BASE_TYPE_BAD_LENGTH"),
        (modal(label(field()), title="x" * 46), "BASE_TYPE_BAD_LENGTH"),
        (modal(label(field(), label="x" * 46)), "BASE_TYPE_BAD_LENGTH"),
        (modal(label(field(), description="x" * 101)), "BASE_TYPE_MAX_LENGTH"),
        (modal(label(field(label="twice"))), "COMPONENT_LABEL_DUPLICATED"),
        (modal(label(field()), label(field())), "COMPONENT_CUSTOM_ID_DUPLICATED"),
        (modal(label(field(max_length=4001))), "NUMBER_TYPE_MAX"),
        (modal(label(field(placeholder="x" * 101))), "BASE_TYPE_MAX_LENGTH"),
        (modal(label(button())), "UNION_TYPE_CHOICES"),
        (modal(row(field())), "BASE_TYPE_REQUIRED"),
    ],
)
def test_modals_that_discord_refuses(found: list[str], code: str) -> None:
    assert code in found
