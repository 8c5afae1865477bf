"""Runs a jail once with all flags, and explains failures and their remedies."""

import platform
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sandbox.installed import SCRIPT, find_names
from sandbox.local import jail, seccomp
from sandbox.local.jail import JailConfig, start_bwrap
from sandbox.local.toolbox import SandboxToolbox

PROBE_SECONDS = 20

NAMESPACES = (
    "Allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces); "
    "in a container, its seccomp profile forbids them."
)
FORBIDDEN = "The container or the kernel forbids namespaces or mounts; run it outside, or use another sandbox provider."
REMEDIES = {
    "uid map": "Run: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    "No permissions to create new namespace": NAMESPACES,
    "Creating new namespace failed": NAMESPACES,
    "No space left on device": NAMESPACES,
    "mount proc": "The container masks /proc; run it with an unmasked one.",
    "Operation not permitted": FORBIDDEN,
    "Permission denied": FORBIDDEN,
}
ANY_REMEDY = "Use another sandbox provider on this machine."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """`reason` and `remedy` are sentences for the operator, empty if the provider works.

    `installed` names what sandboxes have of `sandbox.installed`."""

    ok: bool
    reason: str = ""
    remedy: str = ""
    installed: frozenset[str] = frozenset()


def try_jail(executable: Path, config: JailConfig, *, uid: int, drops_user: bool) -> ProbeResult:
    """Runs the configured Python once in a jail with all flags. Blocks for about 50 ms."""
    opening = f"open('{jail.PROGRAM_FOLDER}/agent.py').close()"
    command = [str(config.python), "-I", "-S", "-c", opening]
    return _run_in_jail(command, executable, config, uid, drops_user)


def try_toolbox(
    executable: Path, plan: JailConfig, toolbox: SandboxToolbox, *, uid: int, drops_user: bool
) -> ProbeResult:
    """Loads Playwright and runs the browser once, without a page, in a jail. Blocks for about a second."""
    code = (
        "import subprocess, playwright.async_api; "
        f"subprocess.run([{toolbox.chromium!r}, '--version'], check=True, stdout=subprocess.DEVNULL)"
    )
    tried = _run_in_jail([toolbox.python, "-I", "-c", code], executable, plan, uid, drops_user)
    if tried.ok:
        return tried
    reason = tried.reason.replace("bubblewrap refused", "The browser does not start")
    return ProbeResult(ok=False, reason=reason, remedy="Run: scripts/setup --toolbox")


def list_installed(executable: Path, plan: JailConfig, *, uid: int, drops_user: bool) -> frozenset[str]:
    """Returns which programs and packages of `sandbox.installed` a command in a jail finds. Blocks for about 100 ms."""
    command = ["python3", "-c", SCRIPT]
    return _run_in_jail(command, executable, plan, uid, drops_user).installed


def _run_in_jail(inside: list[str], executable: Path, plan: JailConfig, uid: int, drops_user: bool) -> ProbeResult:
    if not seccomp.is_supported(platform.machine()):
        return ProbeResult(
            ok=False, reason=f"There is no system call filter for {platform.machine()}.", remedy=ANY_REMEDY
        )
    with ExitStack() as stack:
        arguments_fd, descriptors = jail.write_bwrap_arguments(plan, stack)
        command = ["bwrap", "--args", str(arguments_fd), "--", *inside]
        try:
            process = start_bwrap(executable, command, descriptors, uid, drops_user, stderr=subprocess.PIPE)
        except OSError as error:
            return ProbeResult(ok=False, reason=f"bubblewrap does not start: {error}.", remedy=ANY_REMEDY)
        try:
            stderr = process.communicate(timeout=PROBE_SECONDS)[1].decode(errors="replace").strip()
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            stderr = "it does not finish"
    if process.returncode == 0:
        return ProbeResult(ok=True, installed=find_names(stderr))
    remedy = next((text for sign, text in REMEDIES.items() if sign in stderr), ANY_REMEDY)
    return ProbeResult(ok=False, reason=f"bubblewrap refused: {stderr[-400:]}", remedy=remedy)
