"""Starts the demo: simulated chat platforms, the scripted model, the sandbox and the program."""

import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from pydantic import SecretStr

from bots.bootstrap.program import RunningProgram, run_program
from bots.demo.mcp_notice_board import board_server_settings
from bots.demo.scripted_model import serve_scenario
from bots.demo.trap_page_story import delivery_site
from bots.settings import Settings, set_sdk_variables
from bots.slack.install.manifest import build_manifest
from core.domain.errors import ConfigurationError
from sandbox.local import jail_requirements
from sandbox.local.jail import runs_as_root
from sandbox.local.provider import LocalSandboxProvider
from sandbox.local.toolbox import require_toolbox
from simulator.discord.server import DiscordSimulator
from simulator.modal.container import Jail
from simulator.modal.server import ModalSimulator
from simulator.model.scenario import Scenario, load_scenario
from simulator.model.server import ScriptedServer
from simulator.serving import serve_on_loopback
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings, read_manifest

AGENTS = "agents"
STORY_AGENT = """
name: Threadhand
description: The agent of the demo, whose plan people can change.
tools:
  disabled: [python_execute, str_replace_editor]
"""
TOOL_SERVERS = "mcp.json"
SCRIPTED_MODEL = "threadhand/story"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoWorld:
    """The people, channels, agent and settings of the demo. `agent` is the YAML of the default agent. `changes` replace
    settings of the program.

    `has_rate_limits`: the simulated Slack refuses calls above its limits."""

    people: tuple[str, ...] = ("alice", "bob")
    channels: tuple[str, ...] = ("general",)
    agent: str = STORY_AGENT
    changes: Mapping[str, object] = field(default_factory=dict[str, object])
    has_rate_limits: bool = True


_STORY_WORLD = DemoWorld()


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEnvironment:
    """The running demo.

    `script` is None if the demo uses a real model. `skipped` names the features that are missing on this machine.
    `board` is the file of the notice board, `site_url` the address of the website that a story reads. `has_browser`:
    the agent's sandbox has a browser. `settings` are those of the program."""

    slack: SlackSimulator
    discord: DiscordSimulator
    program: RunningProgram
    settings: Settings
    script: ScriptedServer | None
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    board: Path
    site_url: str
    has_browser: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _DemoSandbox:
    """The sandbox provider of the demo, its missing features, and notes for the user."""

    sandbox: str
    has_browser: bool = False
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@asynccontextmanager
async def start_demo(
    settings: Settings, *, scenario: Scenario | None = None, world: DemoWorld = _STORY_WORLD
) -> AsyncGenerator[DemoEnvironment, None]:
    """Context manager: the demo runs inside the block. Its data is deleted at the end.

    `scenario` replaces the default script of the model, `world` the default people and channels. Raises
    ConfigurationError if the demo cannot start."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(_own_folder())
        slack_settings = SlackSettings(
            people=world.people,
            channels=world.channels,
            rate_scale=float(world.has_rate_limits),
            **read_manifest(build_manifest()),
        )
        slack = await stack.enter_async_context(SlackSimulator(settings=slack_settings))
        discord = await stack.enter_async_context(DiscordSimulator(people=world.people, channels=world.channels))
        script = None
        if not settings.model:
            script = await stack.enter_async_context(serve_scenario(scenario or load_default_scenario()))
        ground = await _choose_sandbox(settings, folder, stack, is_scripted=script is not None)
        board = folder / "notices.txt"
        site_url = await stack.enter_async_context(serve_on_loopback(delivery_site(), port=0))
        (folder / AGENTS).mkdir()
        changes: dict[str, object] = {
            "slack_bot_token": SecretStr(slack.settings.bot_token),
            "slack_app_token": SecretStr(slack.settings.app_token),
            "slack_signing_secret": SecretStr(slack.settings.signing_secret),
            "slack_client_id": "",
            "slack_client_secret": SecretStr(""),
            "slack_api_url": slack.api_url,
            "discord_token": SecretStr(discord.world.token),
            "discord_api_url": discord.api_url,
            "allowed_workspaces": ("*",),
            "allowed_channels": (),
            "allowed_users": (),
            "allowed_roles": (),
            "database_url": "",
            "data_dir": folder,
            "mcp_config": folder / TOOL_SERVERS,
            "agents_dir": folder / AGENTS,
            "http_host": "127.0.0.1",
            "http_port": 0,
            "public_url": "",
            "fetch_allow": (site_url.removeprefix("http://"),),
            "sandbox": ground.sandbox,
            "drain_seconds": 0.0,  # its runs end with it
        }
        if script is not None:
            changes |= {
                "model": SCRIPTED_MODEL,
                "fallback_models": (),
                "llm_base_url": script.base_url,
                "llm_api_key": SecretStr("scripted"),
                "price_input_per_million_usd": 0.0,
                "price_output_per_million_usd": 0.0,
            }
        played = settings.model_copy(update=changes)
        played = played.model_copy(update=dict(world.changes))
        (folder / TOOL_SERVERS).write_text(board_server_settings(board), "utf-8")
        if world.agent:
            (folder / AGENTS / "threadhand.yaml").write_text(world.agent, "utf-8")
        program = await stack.enter_async_context(run_program(played, is_temporary=True))
        yield DemoEnvironment(
            slack=slack,
            discord=discord,
            program=program,
            settings=played,
            script=script,
            skipped=ground.skipped if ground.has_browser else (*ground.skipped, "browser"),
            notes=(*ground.notes, *program.warnings),
            board=board,
            site_url=site_url,
            has_browser=ground.has_browser,
        )


def load_default_scenario() -> Scenario:
    """Returns the default script of the model."""
    return load_scenario(files("bots.demo").joinpath("story.yaml").read_text("utf-8"))


@contextmanager
def _own_folder() -> Generator[Path, None, None]:
    """Context manager: yields a temporary folder that the sandbox's user can traverse to reach its workspace."""
    try:
        made = tempfile.TemporaryDirectory(prefix="threadhand-demo-", ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigurationError(
            f"The demo needs a folder for temporary files, and could not make one: {error.strerror}."
        ) from error
    with made as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


async def _choose_sandbox(
    settings: Settings, folder: Path, stack: AsyncExitStack, *, is_scripted: bool
) -> _DemoSandbox:
    """Returns the configured sandbox provider if it works on this machine.

    If local sandboxes do not work, the scripted model uses plain processes instead, because its commands are harmless.
    Raises ConfigurationError for a real model in that case, and if sandboxes are disabled."""
    if settings.sandbox == "none":
        raise ConfigurationError("The demo needs a sandbox: leave THREADHAND_SANDBOX unset.")
    if settings.sandbox == "modal":
        if has_modal_account():
            notes = ("Sandboxes run at Modal, in the account that is set up.",)
            return _DemoSandbox(sandbox="modal", has_browser=True, notes=notes)
        if not is_scripted:
            raise ConfigurationError(MODAL_ACCOUNT_REQUIRED)
        jail, why = await _jail(folder)
        modal = await stack.enter_async_context(ModalSimulator(jail))
        token_id, secret = modal.world.credentials
        set_sdk_variables(
            {
                "MODAL_SERVER_URL": modal.url,
                "MODAL_TOKEN_ID": token_id,
                "MODAL_TOKEN_SECRET": secret,
                "MODAL_DISABLE_API_PROXY": "1",
            }
        )
        notes = ("There is no Modal account here: sandboxes run in a simulated Modal on this machine.",)
        if jail is None:
            loud = f"THIS MACHINE ALLOWS NO JAIL: the simulated Modal runs plain processes. {why}"
            return _DemoSandbox(sandbox="modal", skipped=("jail",), notes=(*notes, loud))
        lacks = (f"The simulated Modal has no browser: {why}",) if why else ()
        return _DemoSandbox(sandbox="modal", has_browser=not why, notes=(*notes, *lacks))
    if settings.sandbox != "local":
        return _DemoSandbox(sandbox=settings.sandbox)
    jails = LocalSandboxProvider(folder / "sandboxes")
    tried = await jails.probe()
    await jails.close()
    if tried.ok:
        return _DemoSandbox(sandbox="local", has_browser=not jails.browser_unavailable_reason)
    why = f"{tried.reason} {tried.remedy}"
    if not is_scripted:
        raise ConfigurationError(f"A real model needs the jail, and this machine does not give it one: {why}")
    loud = f"THIS MACHINE ALLOWS NO JAIL: {why}"
    return _DemoSandbox(sandbox="unsafe-process", skipped=("jail",), notes=(loud,))


USER = 29_999
"""The user ID of sandbox processes in the simulated Modal if the demo runs as root."""
MODAL_ACCOUNT_REQUIRED = (
    "A real model needs Modal itself: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or leave THREADHAND_SANDBOX unset."
)


def has_modal_account() -> bool:
    """Whether the Modal SDK finds a token in environment variables or its configuration file."""
    from modal.config import config

    return bool(config.get("token_id") and config.get("token_secret"))


async def _jail(folder: Path) -> tuple[Jail | None, str]:
    """Returns the local sandbox that the simulated Modal uses, and the reason if it or its browser is unavailable.

    The first value is None if local sandboxes do not work. The second value is empty if everything is available."""
    jails = LocalSandboxProvider(folder / "jail")
    tried = await jails.probe()
    await jails.close()
    if not tried.ok:
        return None, f"{tried.reason} {tried.remedy}"
    drops_user = runs_as_root()
    place = folder / "jail" / "programs"
    python = jail_requirements.require_python(drops_user=drops_user)
    bwrap = jail_requirements.require_bwrap(place, drops_user=drops_user)
    user = USER if drops_user else None
    more: tuple[tuple[Path, str], ...] = ()
    if not jails.browser_unavailable_reason:
        more = require_toolbox(python, drops_user=drops_user).mounts()
    jail = Jail(bwrap=bwrap, python=python.path, prefix=python.prefix, user=user, more=more)
    return jail, jails.browser_unavailable_reason
