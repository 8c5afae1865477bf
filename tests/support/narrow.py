"""Checks what a value is, and returns it with that type."""

from typing import TypeVar

ValueT = TypeVar("ValueT")


def require(value: ValueT | None) -> ValueT:
    """Returns the value. Fails if it is None."""
    assert value is not None
    return value


def require_type(value: object, expected: type[ValueT]) -> ValueT:
    """Returns the value. Fails if it has another type."""
    assert isinstance(value, expected)
    return value
