"""What the shell of every real provider bears: odd commands, long output, stubborn processes."""

import asyncio
import secrets
import time

import pytest

from core.domain.errors import ToolError
from core.ports import Sandbox
from tests.support.sandboxes import ENDED, content, pieces, run

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOT_SAVED = "\n[the folder and variables of the session are those from before this command]\n"


def some_seconds() -> str:
    """A long sleep that no other test has, so that its process can be told from theirs."""
    return str(100_000 + secrets.randbelow(900_000))


async def processes_with(sandbox: Sandbox, word: str) -> int:
    """How many processes in the sandbox have that word in their arguments (written so as not to find itself)."""
    pattern = f"[{word[0]}]{word[1:]}"
    counted = await run(
        sandbox, f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^{pattern}$'", session="counting"
    )
    return int(counted.output)


async def until_none(sandbox: Sandbox, word: str) -> None:
    deadline = time.monotonic() + 30
    while await processes_with(sandbox, word):
        assert time.monotonic() < deadline, f"{word} lives on"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("command", "output", "exit_code"),
    [
        ("exit_with() { return 7; }; exit_with", "", 7),
        ("(exit 9)", "", 9),
        ("cat <<'END'\none 'quote\n\"two\nEND", "one 'quote\n\"two\n", 0),
        ("for i in 1 2\ndo\n  echo $i\ndone", "1\n2\n", 0),
        ("echo a | grep b", "", 1),
        ("printf 'no newline'", "no newline", 0),
        ("echo to-error >&2", "to-error\n", 0),
        ("printf 'é漢🎉'", "é漢🎉", 0),
        ("printf '\\033[31mred\\033[0m \\033]0;title\\007plain'", "red plain", 0),
        ("printf 'a\\rb\\r\\nc'", "b\nc", 0),
        ("printf 'a\\0b\\001c'", "abc", 0),
        ("return 4", "", 4),
        ("", "", 0),
        ("# only a comment", "", 0),
        ("set -x; true", "+++ true\n", 0),
        ("set -x; exit 5", "+++ exit 5\n", 5),
        ("echo '$HOME `id`' \"a!!b\"", "$HOME `id` a!!b\n", 0),
        ("echo a \\", "a\n", 0),
        ("trap 'echo bye' EXIT; exit 6", f"bye\n{NOT_SAVED}", 6),
        ("exec true", NOT_SAVED, 0),
        ("read -t 0.01 x; [ $? -gt 128 ] && tty >/dev/null && : </dev/tty && echo terminal", "terminal\n", 0),
        ("! true", "", 1),
        ("exec > >(tee log) 2>&1; echo on; exit 3", "on\n", 3),
        ("echo on > >(sleep 0.01; cat)", "on\n", 0),
    ],
)
async def test_a_command_is_run_as_written(sandbox: Sandbox, command: str, output: str, exit_code: int) -> None:
    done = await run(sandbox, command)
    assert (done.output, done.exit_code) == (output, exit_code)


@pytest.mark.parametrize("command", ["echo 'open", 'echo "open', "if true; then echo x", "for", "fi", "<<<"])
async def test_a_syntax_error_ends_with_two(sandbox: Sandbox, command: str) -> None:
    done = await run(sandbox, command)
    assert done.exit_code == 2
    assert "syntax error" in done.output or "unexpected" in done.output
    assert (await run(sandbox, "echo on")).output == "on\n"


@pytest.mark.parametrize(
    ("command", "output", "exit_code"),
    [
        ("cat <<END\ninside", "inside", 0),  # an open heredoc ends with what is there
        ("sh -c 'kill -9 $$'", "Killed", 137),
        ("-x", "-x: command not found", 127),
        ("PATH=; ls", "ls: No such file or directory", 127),
        ("set -u; echo $nothing; echo on", "nothing: unbound variable", 127),
    ],
)
async def test_an_error_of_a_command_is_told(sandbox: Sandbox, command: str, output: str, exit_code: int) -> None:
    done = await run(sandbox, command)
    assert (output in done.output, done.exit_code) == (True, exit_code), done


# fmt: off
STATE = {
    "exit": (["mkdir a; cd a; export A=1; exit 3", "echo $A"], "1\n", "a"),
    "set -e": (["mkdir a; cd a; A=1; set -euo pipefail; grep x /dev/null; A=2", "false; echo $A"], "1\n", "a"),
    "options": (["set -xf; shopt -s nullglob; exec >/dev/null 2>&1", "echo on nope*"], "on nope*\n", ""),
    "a trap": (["mkdir a; trap 'echo bye' EXIT; cd a", "echo on"], "on\n", "a"),
    "a trap and exit": (["mkdir a; A=1", "trap 'echo bye' EXIT; cd a; exit 1", "echo $A"], "1\n", ""),
    "a trap for debugging": (["set -T; trap 'echo bye' DEBUG; A=1", "echo $A"], "1\n", ""),
    "exec": (["A=1", "A=2; exec true", "echo $A"], "1\n", ""),
    "killed": (["A=1", "A=2; kill -9 $$", "echo $A"], "1\n", ""),
    "ended by a signal": (["A=1", "A=2; kill $$", "echo $A"], "2\n", ""),
    "venv": (
        ["python3 -m venv --without-pip v && . v/bin/activate",
         '[ $(command -v python3) = "$VIRTUAL_ENV/bin/python3" ]',
         "echo $?; deactivate; echo [$VIRTUAL_ENV]"], "0\n[]\n", ""),
    "readonly": (["readonly R=1", "R=2", "echo $R"], "1\n", ""),
    "odd values": (
        ["A=$'a\\n\"\\' $x `y` \\377é'; B=(1 'two 3'); declare -A C=([k]='v w')",
         "printf %s \"$A\" | od -An -c | tr -s ' '; echo ${B[1]} ${C[k]}"],
        " a \\n \" ' $ x ` y ` 377 303 251\ntwo 3 v w\n", ""),
    "a function with a heredoc": (
        ["f() { cat <<E\nhere $1\nE\n}; export -f f", "f 1; bash -c 'f 2'"], "here 1\nhere 2\n", ""),
    "aliases": (["alias e='echo a'", "f() { e; }", "true", "f; e b"], "a\na b\n", ""),
    "an alias for a builtin": (["alias builtin=false exec=false cd=false; A=1", "echo $A"], "1\n", ""),
    "an odd IFS": (["IFS=0123456789; A=1; (exit 21)", 'echo "$?" $A'], "21 \n", ""),
    "noclobber": (["set -C; A=1", "A=2", "echo $A"], "2\n", ""),
    "umask": (["umask 027", "umask"], "0027\n", ""),
    "unset": (["unset HOME PATH TERM; A=1", "unset A", "echo [$HOME$PATH$TERM${A-none}]"], "[none]\n", ""),
    "an exit code": (["(exit 7)", "echo $?"], "7\n", ""),
    "too much": (["mkdir a; A=1", "cd a; B=$(head -c 2000000 /dev/zero | tr '\\0' x)", "echo $A ${#B}"], "1 0\n", ""),
    "the folder before": (["mkdir a; cd a", "cd - && cd a", "cd - >/dev/null"], "", ""),
    "locals at an exit": (
        ["A=1", "f() { local A=2 PATH=/none; exit 3; }", "f", "echo $A $(command -v ls | grep -c ls)"], "1 1\n", ""),
    "locals under set -e": (["f() { local A=2; set -e; false; }; mkdir a; cd a; f", "echo [$A]"], "[]\n", "a"),
    "extended patterns": (
        ["shopt -s extglob\nf() { case $1 in @(a|b)) ;; esac; }; g() { echo g; }", "g", "g"], "g\n", ""),
    "a folder as its state": (["A=1", "A=2; mkdir ${BASH_SOURCE%.sh}.saved", "echo $A"], "1\n", ""),
    "a pipe as its state": (["A=1", "A=2; d=${BASH_SOURCE%.sh}.saved; mkfifo $d; cat $d &", "echo $A"], "1\n", ""),
    "its files are deleted": (["A=1; mkdir a; rm -rf ${BASH_SOURCE%/*}; cd a", "echo $A"], "1\n", "a"),
}
# fmt: on


@pytest.mark.parametrize("case", STATE)
async def test_a_session_keeps_folder_and_variables_whatever_ends_a_command(sandbox: Sandbox, case: str) -> None:
    commands, output, folder = STATE[case]
    *before, done = [await run(sandbox, command) for command in commands]
    assert (done.output, done.folder) == (output, f"/workspace/{folder}".rstrip("/")), before


async def test_a_session_without_its_folder_runs_nothing_and_then_starts_in_the_workspace(sandbox: Sandbox) -> None:
    await run(sandbox, "mkdir gone; cd gone; rmdir ../gone; A=1")
    with pytest.raises(ToolError, match="/workspace/gone of this session is gone, so nothing was run"):
        await run(sandbox, "touch ran")
    done = await run(sandbox, "ls; echo $A")
    assert (done.output, done.folder) == ("1\n", "/workspace")


async def test_a_folder_too_deep_to_be_entered_again_does_no_harm(sandbox: Sandbox) -> None:
    name = "d" * 200
    deep = await run(sandbox, f"for n in {{1..30}}; do mkdir {name}; cd {name}; done; A=1; cd .; echo ${{#PWD}}")
    assert (deep.exit_code, int(deep.output) > 4096) == (0, True)
    with pytest.raises(ToolError, match="is gone"):
        await run(sandbox, "touch ran")
    assert (await run(sandbox, "ls; echo $A")).output == f"{name}\n1\n"


async def test_commands_of_one_session_run_beside_each_other_and_the_last_to_end_is_kept(sandbox: Sandbox) -> None:
    await run(sandbox, "mkdir a; cd a; A=1")
    first = await run(sandbox, "read word; A=$word", seconds=0)
    second = await run(sandbox, "echo $A; A=2")
    assert (first.session, second.session, second.also_running) == ("main", "main#2", ("main",))
    assert (second.output, second.folder) == ("1\n", "/workspace/a")
    await sandbox.shell.type_text("main", "3\n")
    assert (await sandbox.shell.check("main", timeout_seconds=30)).exit_code == 0
    third = await run(sandbox, "echo $A", session="main#2")
    assert (third.session, third.output, third.also_running) == ("main", "3\n", ())
    assert (await sandbox.shell.check("main#2")).output == "1\n"


@pytest.mark.parametrize("start", ["{} &", "nohup {} &", "setsid {} &", "{} & disown", "({} &)", "env -i {} &"])
async def test_what_a_command_leaves_running_prints_to_its_output_until_it_is_terminated(
    sandbox: Sandbox, start: str
) -> None:
    word = some_seconds()
    job = start.format(f"sh -c 'until [ -e go ]; do sleep 0.05; done; echo late; exec sleep {word}'")
    begun = await run(sandbox, f"echo begun; {job}")
    assert (begun.exit_code, begun.has_jobs or "nohup" in start) == (0, True)
    await run(sandbox, "touch go")
    await sandbox.shell.check("main")
    late = f"until cat {begun.output_path} nohup.out 2>/dev/null | grep -q late; do sleep 0.05; done"
    assert (await run(sandbox, late)).exit_code == 0
    deadline = time.monotonic() + 30
    while not await processes_with(sandbox, word):
        assert time.monotonic() < deadline
    await sandbox.shell.terminate("main")
    await until_none(sandbox, word)


async def test_a_terminated_command_can_leave_its_session_as_it_was(sandbox: Sandbox) -> None:
    await run(sandbox, "mkdir a; cd a; A=1")
    await run(sandbox, "A=2; exec sleep 1000", seconds=0.1)
    await sandbox.shell.terminate("main", keeps_state=True)
    done = await run(sandbox, "echo $A")
    assert (done.output, done.folder) == ("1\n", "/workspace/a")


async def test_a_password_is_asked_for_on_the_terminal(sandbox: Sandbox) -> None:
    await run(sandbox, "python3 -c 'import getpass; print(getpass.getpass()[::-1])'", seconds=0)
    deadline = time.monotonic() + 30
    while "Password" not in (await sandbox.shell.check("main")).output:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    await sandbox.shell.type_text("main", "abc\n")
    assert (await sandbox.shell.check("main", timeout_seconds=30)).output.split() == ["Password:", "cba"]


async def test_a_command_starts_in_the_folder_it_names(sandbox: Sandbox) -> None:
    await sandbox.files.write('it\'s a "folder"/file', pieces(b"found"))
    done = await sandbox.shell.execute("cat file", session="new", folder='it\'s a "folder"', timeout_seconds=30)
    assert (done.output, done.folder) == ("found", '/workspace/it\'s a "folder"')
    again = await sandbox.shell.execute("ls", session="new", folder="", timeout_seconds=30)
    assert again.folder == "/workspace"


async def test_a_text_is_waited_for_in_what_was_printed_after_the_last_input(sandbox: Sandbox) -> None:
    await run(sandbox, "while read word; do sleep 0.2; echo [$word] ready; done", seconds=0)
    for word in ("a", "b"):
        await sandbox.shell.type_text("main", f"{word}\n")
        shown = await sandbox.shell.check("main", timeout_seconds=30, until="ready", end_bytes=4000)
        assert (shown.is_found, shown.output) == (True, f"[{word}] ready\n")


async def test_what_is_typed_before_the_command_has_begun_reaches_it(sandbox: Sandbox) -> None:
    await run(sandbox, "read word; echo got $word", seconds=0)
    await sandbox.shell.type_text("main", "early\n")
    assert (await sandbox.shell.check("main", timeout_seconds=30)).output == "got early\n"


async def test_long_lines_and_many_lines_come_whole(sandbox: Sandbox) -> None:
    line = await run(sandbox, "printf 'x%.0s' $(seq 30000)")
    assert line.output == "x" * 30000
    lines = await run(sandbox, "seq 20000")
    assert lines.output == "".join(f"{n}\n" for n in range(1, 20001))
    assert lines.dropped_bytes == 0


async def test_long_output_keeps_head_and_tail_and_is_whole_in_a_file(sandbox: Sandbox) -> None:
    done = await run(sandbox, "seq 200000")
    assert done.output.startswith("1\n2\n3\n")
    assert done.output.endswith("199999\n200000\n")
    assert "bytes left out here" in done.output
    assert done.dropped_bytes > 0
    assert len(done.output) < 400_000
    counted = await run(sandbox, f"wc -l < {done.output_path}; tail -1 {done.output_path}")
    assert counted.output.split() == ["200000", "200000"]
    assert [entry.path for entry in await sandbox.files.list("")] == []


async def test_endless_output_is_stopped_and_costs_little(sandbox: Sandbox) -> None:
    begun = await run(sandbox, "yes", seconds=1)
    assert begun.exit_code is None
    assert len(begun.output) < 400_000
    started = time.monotonic()
    await sandbox.interrupt()
    assert time.monotonic() - started < 30
    assert (await sandbox.shell.check("main")).exit_code == 130
    assert (await run(sandbox, "echo on")).output == "on\n"


@pytest.mark.parametrize(
    "command",
    [
        "trap '' INT; while :; do sleep 1111; done",
        "trap '' INT; while :; do :; done",
        "bash -c \"trap '' INT TERM HUP; sleep 1111 & wait; sleep 1111\"",
        "trap '' INT; python3 -c 'import time; time.sleep(1111)'",
        "setsid -w sleep 1111",
        "sleep 1111 | cat",
        "kill -STOP $$",
    ],
)
async def test_an_interrupt_ends_the_stubborn(sandbox: Sandbox, command: str) -> None:
    word = some_seconds()
    await run(sandbox, command.replace("1111", word), seconds=0.3)
    started = time.monotonic()
    await sandbox.interrupt()
    assert time.monotonic() - started < 30
    assert (await sandbox.shell.check("main")).exit_code in ENDED
    assert (await run(sandbox, "echo on")).output.endswith("on\n")
    await until_none(sandbox, word)


async def test_an_interrupt_leaves_background_jobs_of_ended_commands(sandbox: Sandbox) -> None:
    word = some_seconds()
    await run(sandbox, f"sleep {word} &", session="server")
    await run(sandbox, "sleep 4567", seconds=0.3)
    await sandbox.interrupt()
    assert await processes_with(sandbox, word) == 1
    await sandbox.shell.terminate("server")
    await until_none(sandbox, word)


async def test_a_terminal_left_raw_does_no_harm(sandbox: Sandbox) -> None:
    await run(sandbox, "stty raw -isig echo")
    done = await run(sandbox, "printf 'a\\nb\\n'")
    assert done.output == "a\nb\n"


async def test_what_is_interrupted_before_it_has_begun_never_begins(sandbox: Sandbox) -> None:
    await run(sandbox, "A=1", session="fresh")
    await run(sandbox, "touch begun; A=2; sleep 1000", session="fresh", seconds=0)
    await sandbox.interrupt()
    assert (await sandbox.shell.check("fresh")).exit_code in ENDED
    done = await run(sandbox, "echo on $A", session="fresh")
    assert done.output in ("on 1\n", "on 2\n")


async def test_text_that_nobody_read_is_not_taken_for_a_command(sandbox: Sandbox) -> None:
    await run(sandbox, "sleep 0.3", seconds=0)
    await sandbox.shell.type_text("main", "touch surprise\n")
    assert (await sandbox.shell.check("main", timeout_seconds=30)).exit_code == 0
    assert (await run(sandbox, "ls; echo on")).output == "on\n"


async def test_long_input_is_typed_whole(sandbox: Sandbox) -> None:
    lines = "".join(f"{number:099}\n" for number in range(3000))
    await run(sandbox, "sleep 0.3; head -c 300000 >typed", seconds=0)
    await sandbox.shell.type_text("main", lines)
    assert (await sandbox.shell.check("main", timeout_seconds=30)).exit_code == 0
    assert await content(sandbox, "typed") == lines.encode()


async def test_input_that_no_program_reads_is_reported_with_what_was_taken(sandbox: Sandbox) -> None:
    await run(sandbox, "sleep 60", seconds=0)
    with pytest.raises(ToolError, match=r"took only [1-9]\d* of 300000 bytes"):
        await sandbox.shell.type_text("main", f"{'x' * 99}\n" * 3000)
    await sandbox.interrupt()
    assert (await run(sandbox, "echo on")).output == "on\n"


async def test_a_command_too_long_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(ToolError, match="too long"):
        await run(sandbox, "#" * 2_000_000)
    with pytest.raises(ToolError, match="too long"):
        await run(sandbox, "#" * 5_000_000)
    assert (await run(sandbox, "true")).exit_code == 0
