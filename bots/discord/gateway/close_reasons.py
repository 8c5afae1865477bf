"""What the operator is told when Discord refuses the bot for good: one sentence each, with the remedy."""

from bots.settings.shards import Shards

LOGIN = "Discord refused the bot token: set THREADHAND_DISCORD_TOKEN to the token of your bot."
INTENT = (
    "Discord refuses the message content intent: switch on “Message Content Intent” for the bot in "
    "the Discord developer portal (Bot, Privileged Gateway Intents)."
)
BAD_TOKEN = 4004
BAD_SHARDS = (4010, 4011)
"""No such shard; too many servers for so few shards."""


def closed(code: int, shards: Shards | None) -> str:
    """For a connection that Discord closed with a code after which there is no reconnecting."""
    if code == BAD_TOKEN:
        return LOGIN
    if code in BAD_SHARDS and shards is not None:
        return (
            f"Discord does not take {shards.count} shards: raise the number behind the / of "
            "THREADHAND_DISCORD_SHARDS, the same for every process."
        )
    return f"Discord closed the connection for good, with code {code}."
