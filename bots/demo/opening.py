"""How a story begins: a mention in Slack, a slash command in Discord, each with a file."""

from bots.demo.watch import Watch, until
from simulator.view import PlatformView, SentFile, SimulatedPlatform

PATIENCE_SECONDS = 60.0


async def mentioned(
    slack: SimulatedPlatform, person: str, text: str, file: SentFile, patience_seconds: float
) -> Watch:
    """Mentions the agent in a channel."""
    said = f"@{slack.view().bot_name} {text}"
    thread_id = await slack.say(person, first_channel(slack.view()), said, files=[file])
    return Watch(platform=slack, thread_id=thread_id, patience_seconds=patience_seconds)


async def called(
    discord: SimulatedPlatform, person: str, text: str, file: SentFile, patience_seconds: float
) -> Watch:
    """Calls the slash command with an attachment. Raises StoryBroken."""
    channel = first_channel(discord.view())
    wait = patience_seconds
    await until(discord, lambda view: bool(view.commands), "the slash commands come up", wait)
    before = _threads(discord.view())
    await discord.command(
        person, channel, "agent run", {"prompt": text}, files={"attachment": file}
    )
    await until(discord, lambda view: bool(_threads(view) - before), "a thread is opened", wait)
    thread_id = min(_threads(discord.view()) - before)
    return Watch(platform=discord, thread_id=thread_id, patience_seconds=patience_seconds)


def first_channel(view: PlatformView) -> str:
    return next(channel.channel_id for channel in view.channels if not channel.is_direct)


def _threads(view: PlatformView) -> set[str]:
    return {thread.thread_id for channel in view.channels for thread in channel.threads}
