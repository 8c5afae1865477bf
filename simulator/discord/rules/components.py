"""What Discord refuses in the components of a message: types, counts, lengths, doubled ids."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from simulator.discord.json_reading import Json, as_list, as_object, int_of, objects_of, text_of
from simulator.discord.rest.errors import FormErrors, Path

ROW, BUTTON, STRING_SELECT, TEXT_INPUT = 1, 2, 3, 4
SECTION, TEXT, THUMBNAIL, GALLERY, FILE, SEPARATOR, CONTAINER = 9, 10, 11, 12, 13, 14, 17
SELECTS = (3, 5, 6, 7, 8)

_TOP = (ROW, SECTION, TEXT, GALLERY, FILE, SEPARATOR, CONTAINER)
_IN_CONTAINER = (ROW, SECTION, TEXT, GALLERY, FILE, SEPARATOR)
_LINK, _PREMIUM = 5, 6


@dataclass(slots=True, kw_only=True)
class Check:
    """One pass over a tree of components; `filenames` are the attachments that it may show."""

    errors: FormErrors
    filenames: frozenset[str] = frozenset()
    custom_ids: set[str] = field(default_factory=set[str])
    component_ids: set[int] = field(default_factory=set[int])
    count: int = 0
    characters: int = 0

    def members(self, path: Path, value: object, kinds: tuple[int, ...]) -> Iterator[tuple[Path, Json]]:
        """The components of a list that are of an allowed kind; the others are refused."""
        for index, item in enumerate(as_list(value) or ()):
            component = as_object(item)
            if component is None:
                message = "Only dictionaries may be used in a DictType"
                self.errors.add((*path, index), "DICT_TYPE_CONVERT", message)
            elif self._is_kind((*path, index), component, kinds):
                yield (*path, index), component

    def one(self, path: Path, value: object, kinds: tuple[int, ...]) -> Json | None:
        component = as_object(value)
        if component is None:
            self.errors.required(path)
            return None
        return component if self._is_kind(path, component, kinds) else None

    def _is_kind(self, path: Path, component: Json, kinds: tuple[int, ...]) -> bool:
        self.count += 1
        component_id = component.get("id")
        if isinstance(component_id, int) and component_id:
            if component_id in self.component_ids:
                self.errors.add((*path, "id"), "COMPONENT_ID_DUPLICATED", "Component id cannot be duplicated")
            self.component_ids.add(component_id)
        kind = component.get("type")
        # True and 1.0 equal 1 to Python; to Discord they are no kinds
        if isinstance(kind, int) and not isinstance(kind, bool) and kind in kinds:
            return True
        listed = ", ".join(str(kind) for kind in kinds)
        message = f'Value of field "type" must be one of ({listed},).'
        self.errors.add((*path, "type"), "UNION_TYPE_CHOICES", message)
        return False

    def custom_id(self, path: Path, component: Json) -> None:
        value = component.get("custom_id")
        if value is None:
            self.errors.required((*path, "custom_id"))
        elif self.errors.length((*path, "custom_id"), value, 100, 1):
            if value in self.custom_ids:
                message = "Component custom id cannot be duplicated"
                self.errors.add((*path, "custom_id"), "COMPONENT_CUSTOM_ID_DUPLICATED", message)
            self.custom_ids.add(str(value))

    def media(self, path: Path, value: object, *, attachment_only: bool = False) -> None:
        url = text_of(as_object(value) or {}, "url")
        path = (*path, "url")
        if not url:
            self.errors.required(path)
        elif url.startswith("attachment://"):
            if url.removeprefix("attachment://") not in self.filenames:
                message = "The referenced attachment was not found"
                self.errors.add(path, "UNFURLED_MEDIA_ITEM_REFERENCED_ATTACHMENT_NOT_FOUND", message)
        elif attachment_only or not url.startswith(("http://", "https://")):
            schemes = "('attachment',)" if attachment_only else "('http', 'https', 'attachment')"
            message = f'Scheme "{url.partition(":")[0]}" is not supported. It must be one of {schemes}.'
            self.errors.add(path, "URL_TYPE_INVALID_SCHEME", message)


def check_components(errors: FormErrors, components: object, *, is_v2: bool, filenames: frozenset[str]) -> None:
    """Legacy messages hold up to 5 rows; v2 holds 40 components, nested ones counted, and 4,000 characters."""
    path: Path = ("components",)
    items = as_list(components)
    if items is None:
        errors.add(path, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
        return
    check = Check(errors=errors, filenames=filenames)
    if not is_v2:
        if items:
            errors.size(path, items, 5, 1)
        for where, row in check.members(path, items, (ROW,)):
            _row(check, where, row)
        return
    for where, component in check.members(path, items, _TOP):
        _CHECKS[int_of(component, "type")](check, where, component)
    if check.count > 40:
        message = "The total number of components must not exceed 40."
        errors.add(path, "COMPONENT_MAX_TOTAL_COMPONENTS_EXCEEDED", message)
    if check.characters > 4000:
        message = "Total length of components' displayable text exceeds the maximum of 4000."
        errors.add(path, "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED", message)


def _row(check: Check, path: Path, row: Json) -> None:
    path = (*path, "components")
    children = row.get("components")
    if not check.errors.size(path, children, 5, 1):
        return
    width = 0
    for where, child in check.members(path, children, (BUTTON, *SELECTS)):
        is_button = child.get("type") == BUTTON
        width += 1 if is_button else 5
        if width > 5:
            message = "The specified component exceeds the maximum width"
            check.errors.add(where, "COMPONENT_LAYOUT_WIDTH_EXCEEDED", message)
        (_button if is_button else check_select)(check, where, child)


def _button(check: Check, path: Path, button: Json) -> None:
    errors, style = check.errors, button.get("style")
    if not errors.choice((*path, "style"), style, (1, 2, 3, 4, 5, 6)):
        return
    if button.get("label") is not None:
        errors.length((*path, "label"), button.get("label"), 80)
    if style == _LINK:
        _link(check, path, button)
    elif style != _PREMIUM:
        if button.get("url") is not None:
            message = "A custom id and url cannot both be specified"
            errors.add(path, "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE", message)
        check.custom_id(path, button)
    if style != _PREMIUM and not button.get("label") and not button.get("emoji"):
        message = "A button must have a label or an emoji"
        errors.add(path, "BUTTON_COMPONENT_LABEL_OR_EMOJI_REQUIRED", message)


def _link(check: Check, path: Path, button: Json) -> None:
    url = button.get("url")
    if button.get("custom_id") is not None:
        message = "A custom id and url cannot both be specified"
        check.errors.add(path, "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE", message)
    if not isinstance(url, str) or not url:
        check.errors.required((*path, "url"))
    elif not url.startswith(("http://", "https://", "discord://")):
        message = "Not a well formed URL."
        check.errors.add((*path, "url"), "URL_TYPE_INVALID_URL", message)
    else:
        check.errors.length((*path, "url"), url, 512)


def check_select(check: Check, path: Path, select: Json, *, is_in_modal: bool = False) -> None:
    errors = check.errors
    check.custom_id(path, select)
    if select.get("placeholder") is not None:
        errors.length((*path, "placeholder"), select.get("placeholder"), 150)
    for name in ("min_values", "max_values"):
        if select.get(name) is not None:
            minimum = 1 if name == "max_values" else 0
            errors.number((*path, name), select.get(name), minimum, 25)
    if is_in_modal and select.get("disabled"):
        message = "Select components cannot be disabled in a modal"
        errors.add((*path, "disabled"), "COMPONENT_DISABLED_IN_MODAL", message)
    if select.get("type") == STRING_SELECT:
        check_options(check, path, select, 25)
        if int_of(select, "max_values") > len(objects_of(select, "options")):
            message = "Max values cannot be more than the number of options"
            errors.add((*path, "max_values"), "SELECT_COMPONENT_MAX_VALUES_TOO_MANY", message)


def check_options(check: Check, path: Path, component: Json, maximum: int, minimum: int = 1) -> None:
    errors, path = check.errors, (*path, "options")
    if not errors.size(path, component.get("options"), maximum, minimum):
        return
    seen: set[str] = set()
    for index, option in enumerate(objects_of(component, "options")):
        where = (*path, index)
        for name in ("label", "value"):
            if option.get(name) is None:
                errors.required((*where, name))
            else:
                errors.length((*where, name), option.get(name), 100, 1)
        if option.get("description") is not None:
            errors.length((*where, "description"), option.get("description"), 100)
        value = text_of(option, "value")
        if value in seen:
            message = "The specified option value is already used"
            errors.add(where, "SELECT_COMPONENT_OPTION_VALUE_DUPLICATED", message)
        seen.add(value)


def check_text(check: Check, path: Path, text: Json) -> None:
    if check.errors.length((*path, "content"), text.get("content"), 4000, 1):
        check.characters += len(text_of(text, "content"))


def _section(check: Check, path: Path, section: Json) -> None:
    inside = (*path, "components")
    if check.errors.size(inside, section.get("components"), 3, 1):
        for where, text in check.members(inside, section.get("components"), (TEXT,)):
            check_text(check, where, text)
    where = (*path, "accessory")
    accessory = check.one(where, section.get("accessory"), (BUTTON, THUMBNAIL))
    if accessory is not None and accessory.get("type") == BUTTON:
        _button(check, where, accessory)
    elif accessory is not None:
        _picture(check, where, accessory)


def _picture(check: Check, path: Path, item: Json) -> None:
    check.media((*path, "media"), item.get("media"))
    if item.get("description") is not None:
        check.errors.length((*path, "description"), item.get("description"), 1024)


def _gallery(check: Check, path: Path, gallery: Json) -> None:
    path = (*path, "items")
    if check.errors.size(path, gallery.get("items"), 10, 1):
        for index, item in enumerate(objects_of(gallery, "items")):
            _picture(check, (*path, index), item)


def _file(check: Check, path: Path, component: Json) -> None:
    check.media((*path, "file"), component.get("file"), attachment_only=True)


def _separator(check: Check, path: Path, separator: Json) -> None:
    if separator.get("spacing") is not None:
        check.errors.choice((*path, "spacing"), separator.get("spacing"), (1, 2))


def _container(check: Check, path: Path, container: Json) -> None:
    colour = container.get("accent_color")
    if colour is not None:
        check.errors.number((*path, "accent_color"), colour, 0, 0xFFFFFF)
    inside = (*path, "components")
    if not isinstance(container.get("components"), list) or not container.get("components"):
        check.errors.required(inside)
    for where, component in check.members(inside, container.get("components"), _IN_CONTAINER):
        _CHECKS[int_of(component, "type")](check, where, component)


_CHECKS: dict[int, Callable[[Check, Path, Json], None]] = {
    ROW: _row,
    SECTION: _section,
    TEXT: check_text,
    GALLERY: _gallery,
    FILE: _file,
    SEPARATOR: _separator,
    CONTAINER: _container,
}
