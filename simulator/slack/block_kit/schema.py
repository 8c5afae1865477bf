"""Small checks of JSON values that combine to Block Kit's rules and name the place of the first flaw."""

from collections.abc import Callable
from math import isfinite
from typing import cast

from simulator.slack.events.payloads import Payload

Check = Callable[[object], None]


class Flaw(Exception):
    """What is wrong, and where: the keys from the outermost value inwards."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.place: list[str] = []

    def at(self, key: str | int) -> "Flaw":
        """The same flaw, seen from one level further out."""
        self.place.insert(0, str(key))
        return self

    def message(self, root: str) -> str:
        """The sentence as the platform words it."""
        return f"[ERROR] {self.sentence} [json-pointer:/{'/'.join([root, *self.place])}]"


def string(longest: int, *, shortest: int = 1) -> Check:
    """A string of so many characters."""

    def check(value: object) -> None:
        if not isinstance(value, str):
            raise Flaw("must be a string")
        if len(value) < shortest:
            raise Flaw(f"must be more than {shortest - 1} characters")
        if len(value) > longest:
            raise Flaw(f"must be less than {longest + 1} characters")

    return check


def address(longest: int = 3000) -> Check:
    """A URL that a client opens."""
    is_string = string(longest)

    def check(value: object) -> None:
        is_string(value)
        if not cast(str, value).startswith(("http://", "https://", "mailto:", "slack:", "tel:")):
            raise Flaw("must be a valid URL")

    return check


def boolean(value: object) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise Flaw("must be a boolean")


def anything(value: object) -> None:
    """No rule of its own."""


def integer(lowest: int, highest: int) -> Check:
    """A whole number in a range."""

    def check(value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Flaw("must be an integer")
        if not lowest <= value <= highest:
            raise Flaw(f"must be between {lowest} and {highest}")

    return check


def number(*, is_positive: bool = False) -> Check:
    """A finite number."""

    def check(value: object) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
            raise Flaw("must be a number")
        if is_positive and value <= 0:
            raise Flaw("must be more than 0")

    return check


def one_of(*allowed: str) -> Check:
    """One of these strings."""

    def check(value: object) -> None:
        if value not in allowed:
            raise Flaw(f"must be one of: {', '.join(allowed)}")

    return check


def array(item: Check, *, most: int, least: int = 1) -> Check:
    """An array of so many items that each pass."""

    def check(value: object) -> None:
        if not isinstance(value, list):
            raise Flaw("must be an array")
        items = cast(list[object], value)
        if len(items) < least:
            raise Flaw(f"no less than {least} items required")
        if len(items) > most:
            raise Flaw(f"no more than {most} items allowed")
        for index, entry in enumerate(items):
            try:
                item(entry)
            except Flaw as flaw:
                raise flaw.at(index) from None

    return check


def table(fields: dict[str, Check], *required: str) -> Check:
    """An object with these fields and no others."""

    def check(value: object) -> None:
        if not isinstance(value, dict):
            raise Flaw("must be an object")
        entries = cast(Payload, value)
        for key, entry in entries.items():
            rule = fields.get(key)
            if rule is None:
                raise Flaw(f"invalid additional property: {key}")
            try:
                rule(entry)
            except Flaw as flaw:
                raise flaw.at(key) from None
        for key in required:
            if key not in entries:
                raise Flaw(f"missing required field: {key}")

    return check


def by_type(kinds: dict[str, Check]) -> Check:
    """An object whose `type` picks its rule."""

    def check(value: object) -> None:
        if not isinstance(value, dict):
            raise Flaw("must be an object")
        kind = cast(Payload, value).get("type")
        if kind is None:
            raise Flaw("missing required field: type")
        rule = kinds.get(kind) if isinstance(kind, str) else None
        if rule is None:
            raise Flaw(f"unsupported type: {kind}")
        rule(cast(object, value))

    return check


def both(*checks: Check) -> Check:
    """Every one of these rules."""

    def check(value: object) -> None:
        for rule in checks:
            rule(value)

    return check


def any_key_of(*keys: str, is_exclusive: bool = False) -> Check:
    """An object that has one of these keys, or exactly one of them."""

    def check(value: object) -> None:
        found = [key for key in keys if key in cast(Payload, value)]
        if not found:
            raise Flaw(f"must define either {' or '.join(f'`{key}`' for key in keys)}")
        if is_exclusive and len(found) > 1:
            raise Flaw(f"must define only one of {', '.join(f'`{key}`' for key in keys)}")

    return check
