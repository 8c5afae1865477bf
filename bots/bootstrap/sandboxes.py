"""Builds the sandbox provider that the settings choose, and tests it once.

A provider that does not work is never replaced by a provider with weaker isolation."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bots.bootstrap.web_access import build_address_guard, build_forward_proxy
from bots.observability.logs import add_log_secrets
from bots.settings import Settings
from core.domain.errors import ConfigurationError
from core.domain.sandbox_records import SandboxRecords
from core.domain.threads import Address
from core.knowledge.parsing.parser_process import set_child_confinement
from core.observability import SandboxOccupancy
from core.ports import SandboxProvider
from core.prompt.system_prompt import RunPrompt, answer_limit_text, base_prompt, place_text
from sandbox.installed import PACKAGES, PROGRAMS, describe_installed
from sandbox.lifecycle_policy import LifecyclePolicy
from sandbox.limits import MEBIBYTE, SandboxLimits
from sandbox.local.egress_policy import EgressConfig, EgressPolicy, parse_egress_policy
from sandbox.modal.config import LIFETIME_SECONDS, ModalConfig

# each provider is imported only if the settings choose it, because importing all of them takes 0.2 s
if TYPE_CHECKING:
    from sandbox.docker.provider import DockerSandboxProvider
    from sandbox.local.probe import ProbeResult
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

WITH_BROWSER = "It has a browser for {pages}."
ALL_PAGES = "all that it can reach"
PAGES_INSIDE = "pages of the workspace and servers inside"
NO_WAY_OUT = "it has no way to the internet"
NAMES_AND_NETWORKS = (
    "THREADHAND_MODAL_EGRESS has names and networks: Modal then lets a sandbox reach any address on port 443 if the "
    "request names a listed host (SNI). List only networks, or only names, to be strict."
)
IDLE_MARGIN_SECONDS = 600
"""How much longer Modal keeps an idle sandbox than Threadhand itself does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxDeps:
    """The sandbox provider in use, if any, and descriptions of it for the operator and the model.

    `prompt_text` describes the sandbox in the system prompt. `has_browser` is the best guess before the first sandbox
    starts. `installed_text` lists programs and packages for the model, as far as they are known."""

    name: str
    provider: SandboxProvider | None
    warnings: tuple[str, ...] = ()
    prompt_text: str = NO_SANDBOX
    has_browser: bool = False
    installed_text: str = ""
    occupancy: Callable[[], SandboxOccupancy] | None = None


async def build_sandboxes(
    settings: Settings, records: SandboxRecords, *, are_left_running: bool = False
) -> SandboxDeps:
    """Builds and tests the sandbox provider.

    `records` stores the sandboxes that outlive this process. With `are_left_running`, they keep running. Raises
    ConfigurationError if a sandbox setting is invalid."""
    folder = settings.data_dir / "sandboxes"
    match settings.sandbox:
        case "local":
            policy = _egress_policy(settings)
            jails = build_local_jails(settings, folder)
            tried = await jails.probe()
            if tried.ok:
                jails.lifecycle.start()
                text, off = IN_SANDBOX.format(network=_proxy_text(policy)), jails.browser_unavailable_reason
                if not off:
                    text += f" {WITH_BROWSER.format(pages=ALL_PAGES if policy.is_open else PAGES_INSIDE)}"
                return SandboxDeps(
                    name="local",
                    provider=jails,
                    warnings=(f"The browser tools are off: {off}",) if off else (),
                    prompt_text=text,
                    has_browser=not off,
                    installed_text=describe_installed(tried.installed),
                    occupancy=jails.occupancy,
                )
            await jails.close()
            return _tools_off(tried)
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
            return SandboxDeps(name="none", provider=None)
        case "modal":
            from sandbox.modal.provider import ModalSandboxProvider

            plan = replace(build_modal_plan(settings), is_left_running=are_left_running)
            provider = ModalSandboxProvider(plan, records)
            add_log_secrets(provider.secrets)
            tried = await provider.probe()  # if it fails, Modal may still respond by the first run
            if tried.ok:
                provider.start_background_work()
            network = plan.network()
            browser = WITH_BROWSER.format(pages=ALL_PAGES if settings.modal_egress else PAGES_INSIDE)
            lack = f"Sandboxes will not start: {tried.reason} {tried.remedy}"
            return SandboxDeps(
                name="modal",
                provider=provider,
                warnings=(
                    *(() if tried.ok else (lack,)),
                    *([NAMES_AND_NETWORKS] if network.names and network.networks else []),
                ),
                prompt_text=f"{IN_SANDBOX.format(network=_modal_network_text(settings.modal_egress))} {browser}",
                has_browser=True,
                installed_text=describe_installed((*PROGRAMS, *PACKAGES)),
            )
        case "docker":
            provider = build_docker_sandboxes(settings)
            tried = await provider.probe()
            if not tried.ok:
                await provider.close()
                return _tools_off(tried)
            await provider.start_background_work()
            return SandboxDeps(
                name="docker",
                provider=provider,
                prompt_text=IN_SANDBOX.format(network=NO_WAY_OUT),
                installed_text=describe_installed(tried.installed),
            )


def confine_parsers(settings: Settings) -> str:
    """Makes this process parse documents and pictures in jails. Returns a warning if this machine cannot run jails."""
    from sandbox.local.jail_requirements import MissingRequirement
    from sandbox.local.parser_jail import require_parser_jail

    try:
        set_child_confinement(require_parser_jail(settings.data_dir / "sandboxes" / "programs").confine)
    except (MissingRequirement, OSError) as error:
        set_child_confinement(None)
        return f"UNSAFE: documents and pictures are parsed outside of a jail: {error}"
    return ""


def _tools_off(tried: "ProbeResult") -> SandboxDeps:
    off = f"The sandbox tools are off: {tried.reason} {tried.remedy}"
    return SandboxDeps(name="none", provider=None, warnings=(off,))


def build_local_jails(settings: Settings, folder: Path) -> "LocalSandboxProvider":
    """Builds the local sandbox provider without starting jails. Raises ConfigurationError."""
    from sandbox.local.provider import LocalSandboxProvider

    reserve_bytes = settings.sandbox_disk_reserve_mebibytes * MEBIBYTE
    return LocalSandboxProvider(
        folder,
        limits=SandboxLimits(disk_free_bytes_min=reserve_bytes, sandboxes=settings.sandboxes_max),
        egress=EgressConfig(
            policy=_egress_policy(settings), guard=build_address_guard(settings, settings.sandbox_egress_allow)
        ),
        lifecycle_policy=_idle_limits(settings),
    )


def _egress_policy(settings: Settings) -> EgressPolicy:
    try:
        return parse_egress_policy(settings.sandbox_egress)
    except ValueError as error:
        raise ConfigurationError(f"THREADHAND_SANDBOX_EGRESS: {error}.") from error


def build_docker_sandboxes(settings: Settings) -> "DockerSandboxProvider":
    """Builds the Docker sandbox provider without starting containers."""
    from sandbox.docker.cli import DockerCommands
    from sandbox.docker.provider import DockerSandboxProvider

    plan = DockerCommands(image=settings.docker_image, home=str(settings.data_dir))
    return DockerSandboxProvider(plan, settings.data_dir / "sandboxes", lifecycle_policy=_idle_limits(settings))


def _proxy_text(policy: EgressPolicy) -> str:
    if not policy.is_open:
        return NO_WAY_OUT
    places = "the internet"
    if "*" not in policy.allowed:
        places = f"of the internet {', '.join(policy.allowed)} alone,"
    return THROUGH_THE_PROXY.format(places=places)


def build_modal_plan(settings: Settings) -> ModalConfig:
    """Returns the configuration of sandboxes at Modal."""
    url = urlsplit(settings.storage_url)
    # the same for all processes that share a database, whatever their passwords
    database = f"{url.hostname} {url.port} {url.path} {url.query}"
    return ModalConfig(
        app=settings.modal_app,
        home=hashlib.sha256(database.encode()).hexdigest()[:16],
        cpu=(settings.modal_cpu, max(settings.modal_cpu, settings.modal_cpu_max)),
        memory_mebibytes=(
            settings.modal_memory_mebibytes,
            max(settings.modal_memory_mebibytes, settings.modal_memory_mebibytes_max),
        ),
        egress=settings.modal_egress,
        browser_proxy=build_forward_proxy(settings),
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


def _modal_network_text(egress: tuple[str, ...]) -> str:
    if not egress:
        return NO_WAY_OUT
    if "*" in egress:
        return "it can reach the internet"
    return f"of the internet it can reach {', '.join(egress)} alone"


def build_run_prompt(sandboxes: SandboxDeps, address: Address, answer_tokens: int, *, time_zone: str = "") -> RunPrompt:
    """Returns the prompt of a new run: the date, the sandbox and what is installed in it, the place of the
    conversation, and the most tokens that the model may write in one response."""
    system = base_prompt(sandbox=sandboxes.prompt_text)
    prompt = RunPrompt(system=system, began_at=datetime.now(UTC), time_zone=time_zone)
    prompt = prompt.with_state("place", place_text(address))
    prompt = prompt.with_state("installed", sandboxes.installed_text)
    return prompt.with_state("answer limit", answer_limit_text(answer_tokens))
