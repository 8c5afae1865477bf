"""What Discord refuses in an application command."""

import re

from simulator.discord.json_reading import Json, as_list, as_object, object_of, objects_of, text_of
from simulator.discord.rest.errors import FormErrors, Path

SUBCOMMAND, GROUP, STRING, INTEGER, BOOLEAN, USER, NUMBER, ATTACHMENT = 1, 2, 3, 4, 5, 6, 10, 11
_NAME = re.compile(r"[-_'\w]{1,32}")
_OPTION_KINDS = tuple(range(1, 12))
_COMMAND_CHARACTERS_MAX = 8000
_CHOICE_KINDS = (STRING, INTEGER, NUMBER)


_LOCALES = (
    "id da de en-GB en-US es-ES es-419 fr hr it lt hu nl no pl pt-BR ro fi sv-SE vi tr cs el bg ru"
    " uk hi th zh-CN ja zh-TW ko"
)
LOCALES = frozenset(_LOCALES.split())


def _check_localizations(errors: FormErrors, path: Path, item: Json, key: str, maximum: int, *, is_name: bool) -> None:
    path = (*path, key)
    for locale, text in object_of(item, key).items():
        where = (*path, locale)
        if locale not in LOCALES:
            errors.add(where, "BASE_TYPE_CHOICES", f"{locale} is no locale")
        elif errors.length(where, text, maximum, 1) and is_name and not _is_name(str(text)):
            errors.add(where, "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text == text.lower()


def check_command(errors: FormErrors, path: Path, command: Json) -> None:
    kind = command.get("type") or 1
    if not errors.choice((*path, "type"), kind, (1, 2, 3, 4)):
        return
    if kind in (2, 3):
        _check_menu(errors, path, command)
        return
    _check_name(errors, path, command)
    _check_description(errors, path, command)
    _check_options(errors, path, command, depth=0)
    if _characters(command) > _COMMAND_CHARACTERS_MAX:
        message = f"Command exceeds maximum size ({_COMMAND_CHARACTERS_MAX})"
        errors.add(path, "APPLICATION_COMMAND_TOO_LARGE", message)


def _check_menu(errors: FormErrors, path: Path, command: Json) -> None:
    """Context menus have a free name and no description."""
    errors.length((*path, "name"), command.get("name"), 32, 1)
    _check_localizations(errors, path, command, "name_localizations", 32, is_name=False)
    if command.get("description"):
        message = "Context menu commands cannot have description"
        errors.add(path, "APPLICATION_COMMAND_CONTEXT_MENU_DESCRIPTION", message)
    if command.get("options"):
        message = "Context menu commands cannot have options"
        errors.add(path, "APPLICATION_COMMAND_CONTEXT_MENU_OPTIONS", message)


def _check_name(errors: FormErrors, path: Path, item: Json) -> None:
    _check_localizations(errors, path, item, "name_localizations", 32, is_name=True)
    name, path = item.get("name"), (*path, "name")
    if name is None:
        errors.required(path)
    elif errors.length(path, name, 32, 1) and not _is_name(str(name)):
        errors.add(path, "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")


def _check_description(errors: FormErrors, path: Path, item: Json) -> None:
    _check_localizations(errors, path, item, "description_localizations", 100, is_name=False)
    if item.get("description") is None:
        errors.required((*path, "description"))
    else:
        errors.length((*path, "description"), item.get("description"), 100, 1)


def _check_options(errors: FormErrors, path: Path, item: Json, *, depth: int) -> None:
    path = (*path, "options")
    if item.get("options") is None:
        return
    if not errors.size(path, item.get("options"), 25):
        return
    options = objects_of(item, "options")
    _check_unique(errors, path, options)
    seen: set[str] = set()
    is_optional_seen = False
    for index, option in enumerate(options):
        where = (*path, index)
        if not _check_option(errors, where, option, depth):
            continue
        name = text_of(option, "name")
        if name in seen:
            message = "Option names must be unique"
            errors.add(where, "APPLICATION_COMMAND_OPTIONS_NAME_DUPLICATE", message)
        seen.add(name)
        if option.get("required") and is_optional_seen:
            message = "Required options must be placed before non-required options"
            errors.add(where, "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID", message)
        is_optional_seen = is_optional_seen or not option.get("required")
    kinds = {option.get("type") in (SUBCOMMAND, GROUP) for option in options}
    if len(kinds) > 1:
        message = "Sub-command and sub-command group option types are mutually exclusive to all other types"
        errors.add(path, "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", message)


def _check_unique(errors: FormErrors, path: Path, options: list[Json]) -> None:
    """Names differ in every language that has translations."""
    for locale in LOCALES:
        names = [object_of(one, "name_localizations").get(locale) or one.get("name") for one in options]
        if len(set(names)) < len(names):
            message = f"Option names must be unique, also in {locale}"
            errors.add(path, "APPLICATION_COMMAND_OPTIONS_NAME_DUPLICATE", message)


def _check_option(errors: FormErrors, path: Path, option: Json, depth: int) -> bool:
    kind = option.get("type")
    if not errors.choice((*path, "type"), kind, _OPTION_KINDS):
        return False
    if (kind == GROUP and depth > 0) or (kind == SUBCOMMAND and depth > 1):
        message = "Sub-command and sub-command group option types cannot be nested like this"
        errors.add(path, "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", message)
        return False
    _check_name(errors, path, option)
    _check_description(errors, path, option)
    if kind in (SUBCOMMAND, GROUP):
        _check_options(errors, path, option, depth=2 if kind == SUBCOMMAND else 1)
    else:
        _check_choices(errors, path, option)
    return True


def _check_choices(errors: FormErrors, path: Path, option: Json) -> None:
    choices = option.get("choices")
    if option.get("autocomplete") and option.get("type") not in _CHOICE_KINDS:
        message = "This option type cannot have autocomplete"
        errors.add(path, "APPLICATION_COMMAND_OPTION_AUTOCOMPLETE_INVALID_OPTION_TYPE", message)
    if choices is None:
        return
    if as_list(choices) and option.get("type") not in _CHOICE_KINDS:
        message = "This option type cannot have choices"
        errors.add((*path, "choices"), "APPLICATION_COMMAND_OPTION_CHOICES_INVALID", message)
    if as_list(choices) and option.get("autocomplete"):
        message = "An option cannot have both choices and autocomplete"
        errors.add(path, "APPLICATION_COMMAND_OPTION_CHOICES_AUTOCOMPLETE_MIXED", message)
    check_choices(errors, (*path, "choices"), choices, is_text=option.get("type") == STRING)


def check_choices(errors: FormErrors, path: Path, choices: object, *, is_text: bool) -> None:
    """Those of an option, and those that an autocompletion offers."""
    if not errors.size(path, choices, 25):
        return
    for index, choice in enumerate(as_object(one) or {} for one in as_list(choices) or []):
        where = (*path, index)
        errors.length((*where, "name"), choice.get("name"), 100, 1)
        if is_text:
            errors.length((*where, "value"), choice.get("value"), 100, 1)


def _characters(item: Json) -> int:
    own = sum(
        max(map(len, (text_of(item, key), *map(str, object_of(item, f"{key}_localizations").values()))))
        for key in ("name", "description")
    )
    choices = sum(
        len(text_of(choice, "name")) + len(str(choice.get("value") or "")) for choice in objects_of(item, "choices")
    )
    return own + choices + sum(_characters(option) for option in objects_of(item, "options"))
