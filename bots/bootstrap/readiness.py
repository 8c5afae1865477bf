"""What has to work for this process to be of use, part by part; each answers what is wrong, or nothing."""

from bots.bootstrap.messaging import Messaging
from bots.discord.app import DiscordApp
from bots.slack.app import SlackApp
from bots.web.health import ReadinessCheck
from core.domain.threads import Address
from core.run.worker import Worker
from core.stores import Conversations

_PROBE = Address(platform="api", workspace_id="api", channel_id="api", thread_key="readiness")


def database_check(conversations: Conversations) -> ReadinessCheck:
    async def check() -> str:
        await conversations.find(_PROBE)
        return ""

    return check


def messaging_checks(wires: Messaging) -> dict[str, ReadinessCheck]:
    ping = wires.ping
    if ping is None:
        return {}

    async def check() -> str:
        await ping()
        return ""

    return {"redis": check}


def worker_check(worker: Worker) -> ReadinessCheck:
    async def check() -> str:
        return worker.ailment()

    return check


def slack_check(slack: SlackApp) -> ReadinessCheck:
    """For a process that listens to it."""

    async def check() -> str:
        return "" if await slack.is_connected() else "It is not connected just now."

    return check


def discord_check(discord: DiscordApp) -> ReadinessCheck:
    """For a process that listens to it."""

    async def check() -> str:
        return "" if discord.is_ready else "It is not connected just now."

    return check
