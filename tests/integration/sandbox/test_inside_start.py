"""The start of the program inside, and the JSON that it speaks without the module of that name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sandbox
from sandbox.inside import fast_stdlib

SLOW = ("asyncio", "collections", "contextlib", "dataclasses", "enum", "json", "re", "signal", "typing")
ROOT = Path(sandbox.__file__).parents[1]

atoms = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
values = st.recursive(atoms, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@pytest.mark.parametrize("program", ["program", "remote_program"])
def test_no_slow_module_is_imported_before_the_first_call(program: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import sandbox.inside.{program};"
        f" print(*[name for name in {SLOW!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@given(values)
def test_it_writes_and_reads_as_the_public_module(value: object) -> None:
    written = fast_stdlib.dumps(value)
    assert written == json.dumps(value, separators=(",", ":"))
    for text in (written, f" {written}\n", written.encode()):
        assert json.dumps(fast_stdlib.loads(text)) == json.dumps(value)


@pytest.mark.parametrize(
    "text", ["", "{", "[1,]", "1 2", "nul", '{"a":}', '"\x01"', b"\xff", '"open', "{'a': 1}", "[1]]", "\u00a01"]
)
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        fast_stdlib.loads(text)


@given(st.text(alphabet='[]{}",:\\u0123ntrue -.eE'))
def test_it_refuses_what_the_public_module_refuses(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):
            fast_stdlib.loads(text)
    else:
        assert json.dumps(fast_stdlib.loads(text)) == json.dumps(expected)


def test_what_json_has_not_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(TypeError):
        fast_stdlib.dumps({"a": object()})
    with pytest.raises(ValueError):
        fast_stdlib.dumps(circle)
