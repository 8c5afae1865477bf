"""`python -m simulator`: serves any of the simulated services on 127.0.0.1 until SIGINT or SIGTERM."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from simulator.control import Services, serve_control
from simulator.discord.server import DiscordSimulator
from simulator.modal.server import ModalSimulator
from simulator.page.server import served_page
from simulator.serving import PortInUse
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings, SlashCommand

NO_ISOLATION = "Commands in its sandboxes run as processes of the user who started the simulator."


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Serves a simulated Slack, Discord or Modal on 127.0.0.1, and prints one JSON line per service "
        "with its address and the settings that point a bot at it. SIGINT or SIGTERM ends it.",
    )
    for name in ("slack", "discord", "modal"):
        made.add_argument(f"--{name}", action="store_true", help=f"serve a {name.title()}")
    made.add_argument("--page", action="store_true", help="serve a web page of Slack and Discord")
    for name in ("slack", "discord", "modal", "control", "page"):
        text = f"port of {name}; any free one if not given"
        made.add_argument(f"--{name}-port", type=_port, default=0, metavar="PORT", help=text)
    made.add_argument("--people", type=_names, default=("alice", "bob"), metavar="NAMES", help="with commas")
    made.add_argument("--channels", type=_names, default=("general",), metavar="NAMES", help="with commas")
    made.add_argument("--bot-name", default="threadhand", metavar="NAME", help="name of the bot")
    made.add_argument("--no-rate-limits", action="store_true", help="answer 429 for armed faults only")
    made.add_argument(
        "--slack-events-url",
        metavar="URL",
        help="post events and interactions there, signed, instead of serving Socket Mode",
    )
    made.add_argument(
        "--slack-command",
        action="append",
        default=[],
        metavar="NAME",
        help="a slash command of the Slack app; may be given several times",
    )
    return made


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{port} is no port")
    return port


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


async def serve(options: argparse.Namespace) -> None:
    """Serves until the task is cancelled. Raises PortInUse."""
    async with AsyncExitStack() as stack:
        slack = discord = modal = None
        if options.slack:
            slack = await stack.enter_async_context(_slack(options))
            _print_line(slack_line(slack))
        if options.discord:
            discord = await stack.enter_async_context(_discord(options))
            _print_line(discord_line(discord))
        if options.modal:
            modal = await stack.enter_async_context(ModalSimulator(port=options.modal_port))
            _print_line(modal_line(modal))
        services = Services(slack=slack, discord=discord, modal=modal)
        control = serve_control(services, port=options.control_port)
        _print_line({"service": "control", "url": await stack.enter_async_context(control)})
        if options.page:
            page = served_page(services.platforms(), port=options.page_port)
            _print_line({"service": "page", "url": await stack.enter_async_context(page)})
        await asyncio.Event().wait()


def _slack(options: argparse.Namespace) -> SlackSimulator:
    names: Sequence[str] = options.slack_command
    commands = tuple(
        SlashCommand(name=f"/{name.removeprefix('/')}", description="A command of the app") for name in names
    )
    settings = SlackSettings(
        people=options.people,
        channels=options.channels,
        bot_name=options.bot_name,
        events_url=options.slack_events_url,
        commands=commands,
    )
    if options.no_rate_limits:
        settings = replace(settings, rate_scale=0.0)
    return SlackSimulator(options.slack_port, settings=settings)


def _discord(options: argparse.Namespace) -> DiscordSimulator:
    discord = DiscordSimulator(
        port=options.discord_port, people=options.people, channels=options.channels, bot_name=options.bot_name
    )
    if options.no_rate_limits:
        discord.settings.rate_limit_scale = 0.0
    return discord


def slack_line(slack: SlackSimulator) -> dict[str, object]:
    """How a bot reaches this Slack: `environment` for Threadhand, the rest for any other bot."""
    settings = slack.settings
    return {
        "service": "slack",
        "url": slack.api_url,
        "bot_token": settings.bot_token,
        "app_token": settings.app_token,
        "signing_secret": settings.signing_secret,
        "environment": {
            "THREADHAND_SLACK_API_URL": slack.api_url,
            "THREADHAND_SLACK_BOT_TOKEN": settings.bot_token,
            "THREADHAND_SLACK_APP_TOKEN": settings.app_token,
            "THREADHAND_SLACK_SIGNING_SECRET": settings.signing_secret,
        },
    }


def discord_line(discord: DiscordSimulator) -> dict[str, object]:
    """How a bot reaches this Discord."""
    return {
        "service": "discord",
        "url": discord.api_url,
        "gateway_url": discord.gateway_url,
        "bot_token": discord.token,
        "environment": {"THREADHAND_DISCORD_API_URL": discord.api_url, "THREADHAND_DISCORD_TOKEN": discord.token},
    }


def modal_line(modal: ModalSimulator) -> dict[str, object]:
    """How Modal's SDK reaches this Modal."""
    token_id, token_secret = modal.world.credentials
    return {
        "service": "modal",
        "url": modal.url,
        "note": NO_ISOLATION,
        "environment": {
            "MODAL_SERVER_URL": modal.url,
            "MODAL_TOKEN_ID": token_id,
            "MODAL_TOKEN_SECRET": token_secret,
            "MODAL_DISABLE_API_PROXY": "1",
        },
    }


def _print_line(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _serve_until_signal(options: argparse.Namespace) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - this is a task
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    await serve(options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 after a signal, 2 if a port is in use."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    if not (options.slack or options.discord or options.modal):
        command_line.error("name at least one of --slack, --discord and --modal")
    if options.page and not (options.slack or options.discord):
        command_line.error("the page shows chat platforms: add --slack or --discord")
    try:
        asyncio.run(_serve_until_signal(options))
    except asyncio.CancelledError:
        return 0
    except PortInUse as error:
        sys.stderr.write(f"simulator: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
