"""python_execute in real sandboxes."""

import time

import pytest

from sandbox.limits import SandboxLimits
from tests.integration.core.tools.browser.browser_stage import with_browser
from tests.integration.core.tools.conftest import Bench, bench_in
from tests.support.sandboxes import local_jails, run


async def test_what_is_printed_is_the_result(bench: Bench) -> None:
    code = "import sys\nprint(6 * 7)\nprint('aside', file=sys.stderr)\n99"
    assert await bench.output("python_execute", code=code) == "42"
    assert "print what you want" in await bench.output("python_execute", code="x = 1")


async def test_code_of_any_form_arrives_as_it_is(bench: Bench) -> None:
    code = "print('''it's \"q\" $HOME `id` \\\\ é 世界\n  END''')\nif True:\n\tprint('tab')"
    expected = 'it\'s "q" $HOME `id` \\ é 世界\n  END\ntab'
    assert await bench.output("python_execute", code=code) == expected


async def test_an_error_comes_with_its_line_and_what_was_printed(bench: Bench) -> None:
    outcome = await bench.call("python_execute", code="print('before')\nraise ValueError('bad')")
    assert outcome.outcome == "failed"
    output = str(outcome.result["output"])
    assert output.startswith("before\n")
    assert "line 2" in output
    assert output.endswith("ValueError: bad\n[exit code 1]")


@pytest.mark.parametrize(("code", "words"), [("print(", "SyntaxError"), ("input('name? ')", "EOFError")])
async def test_a_mistake_of_syntax_is_told(bench: Bench, code: str, words: str) -> None:
    """So is a question, which nobody answers."""
    outcome = await bench.call("python_execute", code=code)
    assert words in str(outcome.result["output"])


async def test_it_works_in_the_workspace_and_finds_its_modules(bench: Bench) -> None:
    await bench.put("helper.py", b"def twice(x): return 2 * x")
    code = "import helper, pathlib\npathlib.Path('out.txt').write_text('x')\nprint(helper.twice(21))"
    assert await bench.output("python_execute", code=code) == "42"
    assert await bench.get("out.txt") == b"x"


async def test_each_call_starts_anew_and_leaves_nothing_behind(bench: Bench) -> None:
    await bench.output("python_execute", code="x = 1; print(x)")
    outcome = await bench.call("python_execute", code="print(x)")
    assert "NameError" in str(outcome.result["output"])
    assert await bench.sessions() == []
    assert await bench.output("list_files") == "[the folder is empty]"


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


@pytest.mark.parametrize(("end", "exit_code"), [("os.kill(os.getpid(), 9)", 137), ("sys.exit(124)", 124)])
async def test_what_ends_early_did_not_take_too_long(bench: Bench, end: str, exit_code: int) -> None:
    """As code ends that the kernel kills because it uses too much memory."""
    outcome = await bench.call("python_execute", code=f"import os, sys\nprint('started')\n{end}", timeout=60)
    assert str(outcome.result["output"]).startswith("started\n")
    assert str(outcome.result["output"]).endswith(f"[exit code {exit_code}]")


@pytest.mark.parametrize("size", [1000, 150_000])
async def test_long_code_and_long_output_arrive(bench: Bench, size: int) -> None:
    code = f"x = '{'a' * size}'\nprint(len(x))"
    assert await bench.output("python_execute", code=code, timeout=60) == str(size)


async def test_code_that_cannot_be_written_is_no_success() -> None:
    async with local_jails(SandboxLimits(temporary_bytes=1 << 20)) as jails:
        bench = bench_in(await jails.open("thread", fence=1))
        await run(bench.sandbox, "head -c 700K /dev/zero >/tmp/full")
        outcome = await bench.call("python_execute", code="print(1)" + "#" * 180_000)
        assert outcome.outcome == "failed"
        output = str(outcome.result["output"])
        assert "No space left on device" in output
        assert output.endswith("[exit code 1]")


async def test_the_toolbox_comes_after_what_is_installed_inside_and_before_the_machine() -> None:
    async with local_jails() as jails:
        sandbox = await with_browser(jails).open("thread", fence=1)
        code = "import matplotlib, numpy, pandas; print(pandas.__file__)"
        found = await run(sandbox, f"python3 -c '{code}'")
        assert found.output.startswith("/opt/toolbox/")
        alone = await run(sandbox, "python3 -m venv --without-pip e && e/bin/python -c 'import pandas'")
        assert "No module named" in alone.output
        installed = "p=$(python3 -m site --user-site); mkdir -p $p; echo 'print(1234)' >$p/pandas.py"
        own = await run(sandbox, f"{installed}; python3 -c 'import pandas'")
        assert own.output == "1234\n"
