"""A pytest plugin: with --record-payloads FOLDER, writes every payload of the simulated platforms, once for each shape.

Each process writes a file of its own, one JSON object a line: {"kind": ..., "payload": ...}.
"""

import json
import os
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import pytest

from simulator.recording import recording

TELLING_KEYS = frozenset({"type", "subtype", "op", "t", "style", "response_action", "method"})
"""Keys whose value decides which type a payload has."""
_ID = re.compile(r"[A-Z0-9]{6,}|\d+(\.\d+)?|(?=.*\d)[\w+/=-]{5,}")


def find_shape(value: object, place: str = "") -> Iterator[str]:
    """The place and the type of everything in a payload. Items of a list have one place, keys that are ids too."""
    if isinstance(value, dict):
        yield f"{place}{{}}"
        for key, inner in value.items():
            inside = f"{place}/{'#' if _ID.fullmatch(key) else key}"
            if key in TELLING_KEYS and isinstance(inner, str | int):
                yield f"{inside}={inner}"
            else:
                yield from find_shape(inner, inside)
    elif isinstance(value, list):
        yield f"{place}[]"
        for inner in value:
            yield from find_shape(inner, f"{place}/*")
    else:
        yield f"{place}:{type(value).__name__}"


def hash_of(kind: str, payload: object) -> int:
    """Is the same for payloads of one kind and one shape, within a process."""
    return hash((kind, frozenset(find_shape(payload))))


class PayloadRecorder:
    """Writes each payload whose kind and shape it has not seen yet."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._seen: set[int] = set()

    def __call__(self, kind: str, payload: object) -> None:
        if isinstance(payload, str):
            try:
                payload = json.loads(payload)
            except ValueError:
                return  # a simulator may send nonsense on purpose
        shape = hash_of(kind, payload)
        if shape not in self._seen:
            self._seen.add(shape)
            line = json.dumps({"kind": kind, "payload": payload}, default=repr)
            self._file.write(line + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-payloads",
        metavar="FOLDER",
        help="write the payloads of the simulated platforms there, once for each shape",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    folder = session.config.getoption("record_payloads")
    with ExitStack() as stack:
        if folder:
            path = Path(folder) / f"{os.getpid()}.jsonl"
            file = stack.enter_context(path.open("a", encoding="utf-8"))
            stack.enter_context(recording(PayloadRecorder(file)))
        return (yield)
