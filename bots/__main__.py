"""The `threadhand` command line. Each command imports what it needs when it runs, so that `--help` is quick."""

import gc
import logging
import os
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
hooks = typer.Typer(help="Addresses that other programs call, so that the agent begins a task.", no_args_is_help=True)
app.add_typer(hooks, name="hooks")

_INTERRUPTED = 130


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"threadhand {_version()}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A general AI agent that lives in Slack and Discord threads."""


@app.command()
def up(
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Run agents in this process too.")] = True,
) -> None:
    """Serve Slack, Discord and the HTTP API, as configured."""
    settings = _load_settings()
    from bots.bootstrap.program import serve
    from bots.setup.doctor import find_late_problems

    work = serve(settings, with_worker=worker, find_late=find_late_problems)
    _run(work, exit_seconds=settings.exit_seconds)


@app.command()
def worker() -> None:
    """Run agents for bots that run elsewhere. Needs THREADHAND_REDIS_URL and a PostgreSQL database."""
    settings = _load_settings()
    from bots.bootstrap.program import serve_worker

    _run(serve_worker(settings), exit_seconds=settings.exit_seconds)


@app.command()
def demo(
    headless: Annotated[
        bool, typer.Option("--headless", help="Play the stories without a browser and report.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, metavar="PORT", help="Port of the page; any free one if not given.")
    ] = None,
) -> None:
    """Show the agent at work in a simulated chat."""
    settings = _load_settings()
    with _requires_simulator("The demo"):
        from bots.demo.runner import run_demo

    raise typer.Exit(_run(run_demo(settings, headless=headless, port=port)))


@app.command()
def chat() -> None:
    """Talk with the agent in this terminal. Needs a model, and no chat app."""
    settings = _load_settings(Path("chat.log"))
    from bots.chat import run_chat

    raise typer.Exit(_run(run_chat(settings), exit_seconds=settings.exit_seconds))


@app.command(name="eval")
def evaluate(
    tasks: Annotated[list[str] | None, typer.Argument(metavar="TASK...", help="Only these tasks.")] = None,
    model: Annotated[str, typer.Option(help="The model, or scripted:golden for each task's reference.")] = "",
    folder: Annotated[Path | None, typer.Option(help="A folder of tasks; Threadbench if not given.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Only the ten tasks marked so.")] = False,
    attempts: Annotated[int, typer.Option(min=1, max=100, help="Attempts at each task.")] = 1,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Tasks at the same time.")] = 4,
    agent: Annotated[Path | None, typer.Option(help="The YAML file of the agent.")] = None,
    out: Annotated[Path, typer.Option(help="Where the results and the log go.")] = Path("eval"),
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="BEFORE AFTER", help="Compare two result.json files; play nothing."),
    ] = None,
    record: Annotated[str, typer.Option(metavar="THREAD_ID", help="Write a recorded thread as a task to --out.")] = "",
) -> None:
    """Measure a model, a prompt or an agent with tasks of chat work."""
    settings = _load_settings(out.absolute() / "eval.log")
    with _requires_simulator("The evaluation"):
        from bots.eval.runner import EvalOptions, compare_results, run_eval
        from bots.eval.task_from_thread import write_thread_as_task

    if compare is not None:
        print("\n".join(compare_results(*compare, out)))
        return
    if record:
        print(_run(write_thread_as_task(settings, record, out)))
        return
    options = EvalOptions(
        model=model,
        tasks_dir=folder,
        names=tuple(tasks or ()),
        is_smoke=smoke,
        attempts=attempts,
        parallel=parallel,
        agent_file=agent,
        out_dir=out,
    )
    raise typer.Exit(_run(run_eval(settings, options, print)))


@app.command("mcp")
def offer_tools_over_mcp(
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
    from bots.mcp.tool_server import serve_tools_over_mcp

    _run(serve_tools_over_mcp(settings, http_port=http))


@app.command("mcp-login")
def mcp_login(name: Annotated[str, typer.Argument(help="The server's name in THREADHAND_MCP_CONFIG.")]) -> None:
    """Get a person's consent for an MCP server over HTTP (OAuth), and keep it for runs."""
    settings = _load_settings()
    from bots.mcp.login import log_in

    typer.echo(_run(log_in(settings, name)))


@app.command()
def audit(
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="How many entries to show.")] = 50,
) -> None:
    """Show the newest entries of the audit log, the oldest first: who did what, without message texts."""
    settings = _load_settings()
    lines = _run(_read_audit_lines(settings, limit))
    print("\n".join(lines) or "The audit log is empty: the agent has not been used yet.")


@app.command()
def feedback(
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="How many entries to show.")] = 50,
    bad: Annotated[bool, typer.Option("--bad", help="Only answers with a thumbs down.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write their threads as tasks for `threadhand eval`.")
    ] = None,
) -> None:
    """Show what people think of answers, the oldest first, or turn the threads into tasks."""
    settings = _load_settings()
    lines = _run(_read_feedback_lines(settings, limit, bad, export))
    print("\n".join(lines) or "No one has rated an answer yet.")


@hooks.command("list")
def list_hooks() -> None:
    """Show the hooks, with their addresses and secrets."""
    settings = _load_settings()
    from bots.setup import hooks as commands

    print(_run(commands.list_hooks(settings)))


@hooks.command("add")
def add_hook(
    name: Annotated[str, typer.Argument(help="What its address ends with.")],
    task: Annotated[str, typer.Argument(help="What to do; {field.of.the.body} stands for what was sent.")],
    channel: Annotated[str, typer.Option(metavar="PLATFORM/WORKSPACE/CHANNEL", help="Where its threads are.")],
    owner: Annotated[str, typer.Option(metavar="USER", help="The id of the user with whose rights it works.")],
) -> None:
    """Make a hook, and print its address and secret."""
    settings = _load_settings()
    from bots.setup import hooks as commands

    print(_run(commands.add_hook(settings, name, channel, owner, task)))


@hooks.command("test")
def try_hook(name: str) -> None:
    """Begin its task once, without a call."""
    settings = _load_settings()
    from bots.setup import hooks as commands

    print(_run(commands.try_hook(settings, name)))


@hooks.command("remove")
def remove_hook(name: str) -> None:
    """Remove it, with its secret."""
    settings = _load_settings()
    from bots.setup import hooks as commands

    print(_run(commands.remove_hook(settings, name)))


@app.command()
def migrate(
    to: Annotated[
        str,
        typer.Option(
            metavar="REVISION", help="The revision that an older version needs; what only newer ones know is dropped."
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Delete what the older version does not know.")] = False,
) -> None:
    """Bring the database to this version's tables, or back to those of an older version."""
    settings = _load_settings()
    from bots.bootstrap.program import migrate_database

    print(_run(migrate_database(settings, to, may_drop=yes)))


@slack.command()
def manifest(
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The program's https address, for HTTP mode instead of Socket Mode."),
    ] = None,
    organisation: Annotated[
        bool, typer.Option("--organisation", help="Let whole organisations (Enterprise Grid) install it.")
    ] = False,
) -> None:
    """Print the app manifest to paste into api.slack.com/apps."""
    from bots.slack.install.manifest import build_manifest_yaml

    if public_url is not None and not public_url.startswith("https://"):
        raise ConfigurationError("Slack calls public addresses only: --public-url must start with https://.")
    print(build_manifest_yaml(public_url=public_url, for_organisations=organisation), end="")


@app.command()
def setup(
    answers: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Take the answers from a YAML file.")
    ] = None,
) -> None:
    """Ask for keys, try each, and write `.env`."""
    if answers is None and not sys.stdin.isatty():
        raise ConfigurationError(
            "`threadhand setup` asks questions: run it in a terminal, or give it answers: `--from answers.yaml`."
        )
    from bots.setup.dialog import Terminal
    from bots.setup.wizard import run_from_file, run_wizard

    if answers is not None:
        raise typer.Exit(int(not _run(run_from_file(Terminal(), answers, Path(".env")))))
    code = _run(run_wizard(Terminal(), Path(".env")))
    if code is not None:
        raise typer.Exit(code)
    up(worker=True)


@app.command()
def doctor(
    settings: Annotated[bool, typer.Option("--settings", help="List the names of all settings and end.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Call no service on the network.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Try every key, server and limit, and name a remedy for each problem. Exit code 1: something is wrong."""
    from bots.settings import process_environment
    from bots.setup.doctor import list_setting_defaults, run_checks
    from bots.setup.findings import print_findings

    if settings:
        print("\n".join(list_setting_defaults()))
        return
    findings = _run(run_checks(Path(".env"), is_offline=offline))
    with_color = sys.stdout.isatty() and not process_environment().get("NO_COLOR")
    raise typer.Exit(print_findings(findings, as_json=json, with_color=with_color))


@contextmanager
def _requires_simulator(what: str) -> Generator[None]:
    """Around imports: raises ConfigurationError if the simulated platforms are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "simulator":
            raise
        raise ConfigurationError(
            f"{what} needs the simulated chat platforms, which are not installed. "
            "Install them: pip install 'threadhand[demo]'"
        ) from error


async def _read_audit_lines(settings: "Settings", limit: int) -> list[str]:
    """The newest entries of the audit log, one line each, the oldest first.

    Raises ConfigurationError, StorageUnavailable."""
    from bots.inbound.commands.admin import format_audit_entry
    from storage.sql.database import opened_database
    from storage.sql.stores.audit import SqlAuditLog

    async with opened_database(settings.storage_url) as database:
        entries = await SqlAuditLog(database).newest_entries(limit=limit)
    return [format_audit_entry(entry) for entry in reversed(entries)]


async def _read_feedback_lines(settings: "Settings", limit: int, only_bad: bool, export: Path | None) -> list[str]:
    """The newest feedback, one line each, the oldest first. With `export`, also writes a task for each thread.

    Raises ConfigurationError, StorageUnavailable."""
    from bots.inbound.commands.admin import format_feedback
    from storage.sql.database import opened_database
    from storage.sql.stores.talk import SqlFeedback

    async with opened_database(settings.storage_url) as database:
        found = await SqlFeedback(database).newest_feedback(limit=limit, only_bad=only_bad)
    lines = [format_feedback(one) for one in found]
    if export is not None:
        with _requires_simulator("The export"):
            from bots.eval.task_from_thread import write_thread_as_task
        for thread_id in dict.fromkeys(one.thread_id for one in found):
            try:
                lines.append(await write_thread_as_task(settings, thread_id, export))
            except ConfigurationError as error:
                lines.append(f"Thread {thread_id} was not written: {error}")
    return lines


def _load_settings(log_file: Path | None = None) -> "Settings":
    """Loads the settings and begins to log: to stderr, or to a file, whose path may be relative to the data folder."""
    from bots.observability.logs import configure_logging, log_uncaught_errors
    from bots.settings import load_process_settings, settings_secrets
    from core.failpoints import arm

    settings = load_process_settings()
    file = settings.data_dir / log_file if log_file else None
    configure_logging(settings.log_level, settings_secrets(settings), settings.log_format, file=file)
    log_uncaught_errors(file)
    try:
        arm(settings.failpoints)
    except ValueError as error:
        raise ConfigurationError(f"THREADHAND_FAILPOINTS is malformed: {error}.") from error
    return settings


def _run(work: Coroutine[object, object, ResultT], *, exit_seconds: float = 0) -> ResultT:
    """Runs the coroutine to its end. SIGINT or SIGTERM cancels it, so that it can clean up; a second signal, or the
    end of `exit_seconds` after the first if that is not 0, kills the process."""
    import asyncio
    import signal

    received: list[signal.Signals] = []

    async def run_until_signal() -> ResultT:
        gc.freeze()
        gc.enable()
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        signals = (signal.SIGINT, signal.SIGTERM)

        def cancel_task(number: signal.Signals) -> None:
            received.append(number)
            _exit_after(exit_seconds)
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


def _exit_after(seconds: float) -> None:
    """Ends the process and its sandboxes at that time, whatever still runs; 0 means never. Other workers take over its
    runs."""
    import threading

    def exit_at_once() -> None:
        logging.getLogger(__name__).critical("not stopped after %g s: exiting at once", seconds)
        os._exit(1)

    if seconds:
        deadline = threading.Timer(seconds, exit_at_once)
        deadline.daemon = True
        deadline.start()


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
    gc.disable()  # until `_run`: what imports make stays, so collections would free nothing and take half a second
    try:
        app(prog_name="threadhand")
    except ConfigurationError as error:
        for line in str(error).splitlines():
            print(f"threadhand: {line}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
