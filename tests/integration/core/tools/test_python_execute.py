"""python_execute in real sandboxes."""

import time

import pytest

from tests.integration.core.tools.conftest import Bench


async def test_what_is_printed_is_the_result(bench: Bench) -> None:
    code = "import sys\nprint(6 * 7)\nprint('aside', file=sys.stderr)\n99"
    assert await bench.output("python_execute", code=code) == "42"
    assert "print what you want" in await bench.output("python_execute", code="x = 1")


@pytest.mark.parametrize(("code", "words"), [("print(", "SyntaxError"), ("input('name? ')", "EOFError")])
async def test_a_mistake_of_syntax_is_told(bench: Bench, code: str, words: str) -> None:
    """So is a question, which nobody answers."""
    outcome = await bench.call("python_execute", code=code)
    assert words in str(outcome.result["output"])


async def test_what_takes_too_long_is_ended_with_its_children(bench: Bench) -> None:
    code = (
        "import subprocess, time\nprint('started', flush=True)\n"
        "subprocess.Popen(['sh', '-c', 'sleep 4; touch late.txt'])\ntime.sleep(600)"
    )
    started = time.monotonic()
    error = await bench.error("python_execute", code=code, timeout=1)
    assert "did not end within 1 s" in error
    assert error.endswith("It had printed:\nstarted")
    assert time.monotonic() - started < 60
    assert await bench.sessions() == []
    waited = await bench.output("python_execute", code="import time; time.sleep(5); print(1)", timeout=60)
    assert waited == "1"
    assert await bench.output("list_files") == "[the folder is empty]"
