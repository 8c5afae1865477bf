"""Choosing the sandbox: what the settings name, tried once at the start, never weaker in silence."""

from dataclasses import dataclass
from datetime import UTC, datetime

from bots.settings import Settings
from core.errors import ConfigurationError
from core.ports import SandboxProvider
from core.prompt import system_prompt
from sandbox.local import LocalJails
from sandbox.unsafe_process import UnsafeProcesses

NO_SANDBOX = "You have no sandbox here: commands and files are not available."
IN_SANDBOX = (
    "Your sandbox is a Linux machine of its own, with bash and Python 3, that nobody else uses; "
    "it keeps its files for the whole thread and has no way to the internet."
)

WITH_BROWSER = (
    "It has a browser for pages of the workspace and servers inside; matplotlib and pandas are in "
    "/opt/toolbox/bin/python3."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The provider in use, or None. `lacks` are sentences for the operator, `for_the_model` one for the prompt.

    `has_browser`: a browser was found for its sandboxes, by a probe.
    """

    name: str
    provider: SandboxProvider | None
    lacks: tuple[str, ...] = ()
    for_the_model: str = IN_SANDBOX
    has_browser: bool = False


async def machines(settings: Settings) -> Machines:
    """Raises ConfigurationError for a sandbox that this version does not have."""
    folder = settings.data_dir / "sandboxes"
    match settings.sandbox:
        case "local":
            jails = LocalJails(folder)
            tried = await jails.probe()
            if tried.ok:
                return _local(jails)
            await jails.close()
            off = f"The sandbox tools are off: {tried.reason} {tried.remedy}"
            return Machines(name="none", provider=None, lacks=(off,), for_the_model=NO_SANDBOX)
        case "unsafe-process":
            warning = (
                "THE SANDBOX IS OFF: commands of the model run as plain processes of this machine, "
                "with all rights of this user. Use this for trying things out only."
            )
            return Machines(
                name="unsafe-process", provider=UnsafeProcesses(folder), lacks=(warning,)
            )
        case "none":
            return Machines(name="none", provider=None, for_the_model=NO_SANDBOX)
        case "modal" | "docker":
            raise ConfigurationError(
                f"THREADHAND_SANDBOX={settings.sandbox} is not part of this version; "
                "use local, unsafe-process or none."
            )


def _local(jails: LocalJails) -> Machines:
    if not jails.browser_lack:
        told = f"{IN_SANDBOX} {WITH_BROWSER}"
        return Machines(name="local", provider=jails, for_the_model=told, has_browser=True)
    off = f"The browser tools are off: {jails.browser_lack}"
    return Machines(name="local", provider=jails, lacks=(off,))


def prompt(sandboxes: Machines) -> str:
    """The system prompt as of today."""
    return system_prompt(today=datetime.now(UTC).date(), sandbox=sandboxes.for_the_model)
