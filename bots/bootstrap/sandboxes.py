"""Builds the sandbox provider that the settings choose, and tests it once.

A provider that does not work is never replaced by a provider with weaker isolation.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bots.observability.logs import add_log_secrets
from bots.settings import Settings
from bots.settings.validation import parse_endpoint
from core.domain.errors import ConfigurationError
from core.domain.sandbox_records import SandboxRecords
from core.ports import SandboxProvider
from core.prompt.system_prompt import system_prompt
from core.web_access.guard import AddressGuard
from sandbox.lifecycle import LifecyclePolicy
from sandbox.local.egress_policy import EgressConfig, EgressPolicy, parse_egress_policy
from sandbox.modal.config import LIFETIME_SECONDS, ModalConfig

# each provider is imported only if the settings choose it, because importing all of them takes 0.2 s
if TYPE_CHECKING:
    from sandbox.docker.provider import DockerSandboxProvider
    from sandbox.local.provider import LocalSandboxProvider

NO_SANDBOX = "You have no sandbox here: commands and files are not available."
IN_SANDBOX = (
    "Your sandbox is a Linux machine of its own, with bash and Python 3, that nobody else uses. It keeps its files "
    "for the whole thread; what runs in it ends some time after the run; {network}."
)
THROUGH_THE_PROXY = (
    "it reaches {places} through the HTTP proxy that its environment names, so curl, git over https, pip and npm work, "
    "where they are there, and what takes no proxy does not"
)
OF_THE_MACHINE = "it has the network of this machine"

HAS_BROWSER = "It has a browser for {pages}."
WITH_BROWSER = "It has a browser for {pages}; Python has matplotlib and pandas, at least /opt/toolbox/bin/python3."
NO_BROWSER = "It has no browser: the browser tools do not work."
ALL_PAGES = "all that it can reach"
PAGES_INSIDE = "pages of the workspace and servers inside"
NO_WAY_OUT = "it has no way to the internet"
AT_MODAL = (
    "Your sandbox is a Linux machine of its own, with bash and Python 3, that nobody else uses. It keeps its files "
    "for the whole thread; what runs in it ends some time after the run; {network}."
)
IDLE_MARGIN_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxDeps:
    """The sandbox provider in use, if any, and descriptions of it for the operator and the model.

    `prompt_text` describes the sandbox in the system prompt. `has_browser` is the best guess before the first sandbox
    starts. `found_text()` describes the programs found in sandboxes and returns an empty string before the first
    start.
    """

    name: str
    provider: SandboxProvider | None
    warnings: tuple[str, ...] = ()
    prompt_text: str = NO_SANDBOX
    has_browser: bool = False
    found_text: Callable[[], str] = str


async def build_sandboxes(settings: Settings, records: SandboxRecords) -> SandboxDeps:
    """Builds and tests the sandbox provider.

    `records` stores the sandboxes that outlive this process. Raises ConfigurationError if a sandbox setting is invalid.
    """
    folder = settings.data_dir / "sandboxes"
    match settings.sandbox:
        case "local":
            from sandbox.local.provider import LocalSandboxProvider

            egress = _build_egress(settings)
            jails = LocalSandboxProvider(
                folder, egress=egress, lifecycle_policy=_idle_limits(settings)
            )
            tried = await jails.probe()
            if tried.ok:
                jails.lifecycle.start()
                return _local(jails, egress.policy)
            await jails.close()
            off = f"The sandbox tools are off: {tried.reason} {tried.remedy}"
            return SandboxDeps(name="none", provider=None, warnings=(off,), prompt_text=NO_SANDBOX)
        case "unsafe-process":
            from sandbox.unsafe_process import UnsafeProcessProvider

            warning = (
                "THE SANDBOX IS OFF: commands of the model run as plain processes of this machine, "
                "with all rights of this user. Use this for trying things out only."
            )
            return SandboxDeps(
                name="unsafe-process",
                provider=UnsafeProcessProvider(folder),
                warnings=(warning,),
                prompt_text=IN_SANDBOX.format(network=OF_THE_MACHINE),
            )
        case "none":
            return SandboxDeps(name="none", provider=None, prompt_text=NO_SANDBOX)
        case "modal":
            return await _modal(settings, records)
        case "docker":
            return await _docker(settings)


def _local(jails: "LocalSandboxProvider", policy: EgressPolicy) -> SandboxDeps:
    text = IN_SANDBOX.format(network=_proxy_text(policy))
    if not jails.browser_unavailable_reason:
        browser = WITH_BROWSER.format(pages=ALL_PAGES if policy.is_open else PAGES_INSIDE)
        text = f"{text} {browser}"
        return SandboxDeps(name="local", provider=jails, prompt_text=text, has_browser=True)
    off = f"The browser tools are off: {jails.browser_unavailable_reason}"
    return SandboxDeps(name="local", provider=jails, warnings=(off,), prompt_text=text)


async def _docker(settings: Settings) -> SandboxDeps:
    provider = build_docker_sandboxes(settings)
    tried = await provider.probe()
    if tried.ok:
        await provider.start_background_work()
        text = IN_SANDBOX.format(network=NO_WAY_OUT)
        return SandboxDeps(name="docker", provider=provider, prompt_text=text)
    await provider.close()
    off = f"The sandbox tools are off: {tried.reason} {tried.remedy}"
    return SandboxDeps(name="none", provider=None, warnings=(off,), prompt_text=NO_SANDBOX)


def build_docker_sandboxes(settings: Settings) -> "DockerSandboxProvider":
    """Builds the Docker sandbox provider without starting containers."""
    from sandbox.docker.cli import DockerCommands
    from sandbox.docker.provider import DockerSandboxProvider

    plan = DockerCommands(image=settings.docker_image, home=str(settings.data_dir))
    folder = settings.data_dir / "sandboxes"
    return DockerSandboxProvider(plan, folder, lifecycle_policy=_idle_limits(settings))


def _build_egress(settings: Settings) -> EgressConfig:
    """Builds the network policy of sandboxes. Raises ConfigurationError if THREADHAND_SANDBOX_EGRESS is invalid."""
    try:
        policy = parse_egress_policy(settings.sandbox_egress)
    except ValueError as error:
        raise ConfigurationError(f"THREADHAND_SANDBOX_EGRESS: {error}.") from error
    allowed = frozenset(map(parse_endpoint, settings.sandbox_egress_allow))
    return EgressConfig(policy=policy, guard=AddressGuard(allowed))


def _proxy_text(policy: EgressPolicy) -> str:
    if not policy.is_open:
        return NO_WAY_OUT
    places = "the internet"
    if "*" not in policy.allowed:
        places = f"of the internet {', '.join(policy.allowed)} alone,"
    return THROUGH_THE_PROXY.format(places=places)


async def _modal(settings: Settings, records: SandboxRecords) -> SandboxDeps:
    """Builds the Modal provider, even if Modal does not respond now, because it may respond by the first run."""
    from sandbox.modal.provider import (
        ModalSandboxProvider,
    )

    provider = ModalSandboxProvider(build_modal_plan(settings), records)
    add_log_secrets(provider.secrets)
    tried = await provider.probe()
    if tried.ok:
        provider.start_background_work()
    lack = f"Sandboxes will not start: {tried.reason} {tried.remedy}"
    return SandboxDeps(
        name="modal",
        provider=provider,
        warnings=() if tried.ok else (lack,),
        prompt_text=AT_MODAL.format(network=_modal_network_text(settings.modal_egress)),
        has_browser=True,
        found_text=lambda: " ".join(
            _programs_text(provider.found.programs, provider.found.modules)
            + _browser_text(provider.found.has_browser, settings.modal_egress)
        ),
    )


def build_modal_plan(settings: Settings) -> ModalConfig:
    """Returns the configuration of sandboxes at Modal."""
    return ModalConfig(
        app=settings.modal_app,
        home=_database_hash(settings.storage_url),
        cpu=(settings.modal_cpu, max(settings.modal_cpu, settings.modal_cpu_max)),
        memory_mebibytes=(
            settings.modal_memory_mebibytes,
            max(settings.modal_memory_mebibytes, settings.modal_memory_mebibytes_max),
        ),
        egress=settings.modal_egress,
        start_seconds=settings.modal_start_seconds,
        snapshot_days=settings.modal_snapshot_days,
        idle_timeout_seconds=int(settings.sandbox_stop_minutes * 60) + IDLE_MARGIN_SECONDS,
        lifecycle_policy=replace(_idle_limits(settings), lifetime_seconds=LIFETIME_SECONDS),
    )


def _idle_limits(settings: Settings) -> LifecyclePolicy:
    return LifecyclePolicy(
        stop_after_seconds=settings.sandbox_stop_minutes * 60,
        archive_after_seconds=settings.sandbox_archive_minutes * 60,
    )


def _database_hash(storage_url: str) -> str:
    """Returns a hash that is equal for all processes that share a database. It does not depend on the password."""
    url = urlsplit(storage_url)
    text = f"{url.hostname} {url.port} {url.path} {url.query}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _modal_network_text(egress: tuple[str, ...]) -> str:
    if not egress:
        return NO_WAY_OUT
    if "*" in egress:
        return "it can reach the internet"
    return f"of the internet it can reach {', '.join(egress)} alone"


def _programs_text(programs: tuple[str, ...], modules: tuple[str, ...]) -> list[str]:
    text = [f"It has {', '.join(programs)}."] if programs else []
    return [*text, f"Python has {', '.join(modules)}."] if modules else text


def _browser_text(has_browser: bool | None, egress: tuple[str, ...]) -> list[str]:
    if has_browser is None:
        return []
    pages = ALL_PAGES if egress else PAGES_INSIDE
    return [HAS_BROWSER.format(pages=pages) if has_browser else NO_BROWSER]


def render_system_prompt(sandboxes: SandboxDeps) -> str:
    """Returns the system prompt with today's date and a description of the sandbox."""
    sandbox_text = f"{sandboxes.prompt_text} {sandboxes.found_text()}".strip()
    return system_prompt(today=datetime.now(UTC).date(), sandbox=sandbox_text)
