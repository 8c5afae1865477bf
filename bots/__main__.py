"""The `threadhand` command line. Each command imports what it needs when it runs, so that `--help` is quick."""

import gc
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from core.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from bots.settings import Settings

ResultT = TypeVar("ResultT")

app = typer.Typer(
    name="threadhand",
    help="A general AI agent that lives in Slack and Discord threads.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
slack = typer.Typer(help="Set-up of the Slack app.", no_args_is_help=True)
app.add_typer(slack, name="slack")

_INTERRUPTED = 130


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"threadhand {_version()}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A general AI agent that lives in Slack and Discord threads."""


@app.command()
def up(
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Run agents in this process too.")
    ] = True,
) -> None:
    """Serve Slack, Discord and the HTTP API, as configured."""
    settings = _load_settings()
    with _paused_garbage_collection():
        from bots.bootstrap.program import serve

    _run(serve(settings, with_worker=worker))


@app.command()
def worker() -> None:
    """Run agents for bots that run elsewhere. Needs THREADHAND_REDIS_URL and a PostgreSQL database."""
    settings = _load_settings()
    with _paused_garbage_collection():
        from bots.bootstrap.program import serve_worker

    _run(serve_worker(settings))


@app.command()
def demo(
    headless: Annotated[
        bool, typer.Option("--headless", help="Play the story without a browser and report.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, metavar="PORT", help="Port of the page; any free one if not given."
        ),
    ] = None,
) -> None:
    """Show the agent at work in a simulated chat."""
    settings = _load_settings()
    try:
        from bots.demo.runner import run_demo
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "simulator":
            raise
        raise ConfigurationError(
            "The demo needs the simulated chat platforms, which are not installed. "
            "Install them: pip install 'threadhand[demo]'"
        ) from error

    raise typer.Exit(_run(run_demo(settings, headless=headless, port=port)))


@app.command()
def mcp(
    http: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            metavar="PORT",
            help="Serve over HTTP on this port of this machine, with THREADHAND_API_TOKEN as bearer token.",
        ),
    ] = None,
) -> None:
    """Offer the agent's tools to MCP clients. Over stdio, unless a port is given."""
    settings = _load_settings()
    from bots.mcp.server import serve_mcp

    _run(serve_mcp(settings, http_port=http))


@app.command()
def audit(
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="How many entries to show.")
    ] = 50,
) -> None:
    """Show the newest entries of the audit log, the oldest first: who did what, without message texts."""
    settings = _load_settings()
    for line in _run(_read_audit_lines(settings, limit)):
        print(line)


@app.command()
def migrate() -> None:
    """Bring the database to this version's tables."""
    settings = _load_settings()
    from bots.bootstrap.program import migrate_database

    _run(migrate_database(settings))


@slack.command()
def manifest(
    public_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The program's https address, for HTTP mode instead of Socket Mode."
        ),
    ] = None,
    organisation: Annotated[
        bool,
        typer.Option(
            "--organisation", help="Let whole organisations (Enterprise Grid) install it."
        ),
    ] = False,
) -> None:
    """Print the app manifest to paste into api.slack.com/apps."""
    from bots.slack.install.manifest import build_manifest_yaml

    if public_url is not None and not public_url.startswith("https://"):
        raise ConfigurationError(
            "Slack calls public addresses only: --public-url must start with https://."
        )
    print(build_manifest_yaml(public_url=public_url, for_organisations=organisation), end="")


@app.command()
def setup() -> None:
    """Ask for keys, test each, and write `.env`."""
    from bots.setup.wizard import Terminal, run_wizard

    if not sys.stdin.isatty():
        raise ConfigurationError(
            "`threadhand setup` asks questions: run it in a terminal, or write the settings to .env yourself."
        )
    _run(run_wizard(Terminal(), Path(".env")))


@app.command()
def doctor(
    settings: Annotated[
        bool, typer.Option("--settings", help="List the names of all settings and end.")
    ] = False,
) -> None:
    """Check the configuration and suggest a remedy for each problem."""
    from bots.setup.doctor import list_settings, print_findings, run_checks

    if settings:
        print("\n".join(list_settings()))
        return
    raise typer.Exit(print_findings(_run(run_checks(Path(".env")))))


@contextmanager
def _paused_garbage_collection() -> Generator[None]:
    """Around a large import, whose objects all stay: collections would cost a seventh of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _read_audit_lines(settings: "Settings", limit: int) -> list[str]:
    """The newest entries of the audit log, one line each, the oldest first.

    Raises ConfigurationError, StorageUnavailable.
    """
    from bots.inbound.commands.admin import format_audit_entry
    from storage.sql.database import open_database
    from storage.sql.stores.audit import SqlAuditLog

    database = await open_database(settings.storage_url)
    try:
        entries = await SqlAuditLog(database).newest(limit=limit)
    finally:
        await database.close()
    return [format_audit_entry(entry) for entry in reversed(entries)]


def _load_settings() -> "Settings":
    from bots.observability.logs import configure_logging, log_uncaught_errors
    from bots.settings import load_process_settings, secret_values
    from core.failpoints import arm

    settings = load_process_settings()
    configure_logging(settings.log_level, secret_values(settings), settings.log_format)
    log_uncaught_errors()
    try:
        arm(settings.failpoints)
    except ValueError as error:
        raise ConfigurationError(f"THREADHAND_FAILPOINTS is malformed: {error}.") from error
    return settings


def _run(work: Coroutine[object, object, ResultT]) -> ResultT:
    """Runs the coroutine to its end. SIGINT or SIGTERM cancels it, so that it can clean up; a second signal kills the
    process."""
    import asyncio
    import signal

    received: list[signal.Signals] = []

    async def run_until_signal() -> ResultT:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        signals = (signal.SIGINT, signal.SIGTERM)

        def cancel_task(number: signal.Signals) -> None:
            received.append(number)
            for each in signals:
                loop.remove_signal_handler(each)
            if task is not None:
                task.cancel()

        for number in signals:
            loop.add_signal_handler(number, cancel_task, number)
        return await work

    try:
        return asyncio.run(run_until_signal())
    except asyncio.CancelledError:
        if not received:
            raise
        raise typer.Exit(0 if received[0] is signal.SIGTERM else _INTERRUPTED) from None


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("threadhand")
    except PackageNotFoundError:
        import tomllib

        project = Path(__file__).parent.parent / "pyproject.toml"
        return str(tomllib.loads(project.read_text("utf-8"))["project"]["version"])


def main() -> None:
    """The entry point. A ConfigurationError is printed to stderr; the exit code is 2 then."""
    try:
        app(prog_name="threadhand")
    except ConfigurationError as error:
        for line in str(error).splitlines():
            print(f"threadhand: {line}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
