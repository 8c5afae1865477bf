"""Recorded conversations with a simulated platform: ids that are known only when a test runs, and parts of answers."""

import re
from collections.abc import Mapping
from typing import Any, cast


def filled(value: Any, ids: Mapping[str, str]) -> Any:
    """The value with ids in place of their names in braces."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda name: ids[name[1]], value)
    if isinstance(value, list):
        return [filled(one, ids) for one in cast("list[object]", value)]
    return {name: filled(one, ids) for name, one in value.items()} if isinstance(value, dict) else value


def part_of(found: Any, expected: Any) -> Any:
    """What `found` has in place of `expected`: the named fields of objects, and each item of a list."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {name: part_of(found.get(name), one) for name, one in expected.items()}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [part_of(*pair) for pair in zip(found, expected, strict=True)]
    return found
