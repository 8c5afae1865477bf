"""How lenient a simulated Discord is: the switches of its developer portal, its clocks and its limits."""

from dataclasses import dataclass, field

MESSAGE_CONTENT = 1 << 15
GUILD_MEMBERS = 1 << 1
GUILD_PRESENCES = 1 << 8

EVERYTHING = (1 << 53) - 1
INVITED = sum(1 << bit for bit in (6, 10, 11, 15, 16, 35, 38))
"""What a bot that works in threads is invited with: it sees the channels, writes there and in threads, opens public
threads, attaches files, reads back and reacts. It manages nothing."""

_FILE_MIB_BY_TIER = {0: 10, 1: 10, 2: 50, 3: 100}


@dataclass(slots=True, kw_only=True)
class DiscordSettings:
    """May be changed while the simulator runs.

    `missing_permissions` are globs over "PUT /channels/1/messages/2/..." that answer 50013,
    `hidden_channels` are ids that answer 50001. `shards` is how many connections a bot is told to make.
    `acknowledge_seconds` is what the network takes: a client holds a heartbeat that is acknowledged at once for late.
    `knows_layouts`: false for a Discord older than layouts, to which a message of nothing else is empty.
    `names_interaction_channels`: interactions hold `channel`, which Discord's documentation calls optional.
    `bot_permissions` are those of the bot's roles in every guild; `channel_overwrites` are permission overwrites by
    channel id, in Discord's form; see `simulator.discord.rules.permissions`. `clock_seconds` is how far the Date of
    every answer is ahead of this machine's clock.
    `locale` is the language of everybody's Discord, in which commands are drawn.
    `threads_max` are the active threads that a guild may have.
    `rate_limit_scale` stretches every window; 0 turns limits off.
    """

    has_message_content_intent: bool = True
    has_members_intent: bool = True
    has_presences_intent: bool = True
    heartbeat_seconds: float = 41.25
    acknowledge_seconds: float = 0.5
    session_seconds: float = 60.0
    answer_seconds: float = 3.0
    token_seconds: float = 900.0
    file_url_seconds: float = 86_400.0
    nonce_seconds: float = 300.0
    rate_limit_scale: float = 1.0
    guild_tier: int = 0
    shards: int = 1
    knows_layouts: bool = True
    names_interaction_channels: bool = True
    threads_max: int = 1000
    missing_permissions: set[str] = field(default_factory=set[str])
    hidden_channels: set[str] = field(default_factory=set[str])
    bot_permissions: int = INVITED
    channel_overwrites: dict[str, list[dict[str, object]]] = field(default_factory=dict[str, list[dict[str, object]]])
    clock_seconds: float = 0.0
    locale: str = "en-US"

    @property
    def file_bytes_max(self) -> int:
        return _FILE_MIB_BY_TIER.get(self.guild_tier, 10) * 1024 * 1024

    @property
    def refused_intents(self) -> int:
        """The privileged intents that are switched off in the portal."""
        switches = (
            (MESSAGE_CONTENT, self.has_message_content_intent),
            (GUILD_MEMBERS, self.has_members_intent),
            (GUILD_PRESENCES, self.has_presences_intent),
        )
        return sum(bit for bit, is_on in switches if not is_on)

    @property
    def application_flags(self) -> int:
        """The `flags` of the application: which limited privileged intents it has."""
        switches = (
            (1 << 13, self.has_presences_intent),
            (1 << 15, self.has_members_intent),
            (1 << 19, self.has_message_content_intent),
        )
        return sum(bit for bit, is_on in switches if is_on)
