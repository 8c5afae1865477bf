"""What users see before they ask for anything: the greeting in a new channel, and their own page."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from bots.inbound.access import AccessPolicy
from bots.inbound.commands.budget import format_limits
from bots.inbound.commands.conversation import CommandDeps
from core.domain.actions import ActorContext
from core.domain.outside_text import single_line
from core.domain.threads import Address, FollowMode, Person, Run, Selection, Thread
from core.tools.schedules import describe_schedule

RUNS_MAX = 10
ACTIVE = frozenset({"queued", "running", "waiting"})
_FOLLOWING: Mapping[FollowMode, str] = {
    "default": "In a thread in which only you write to me, I also answer without a mention",
    "follow": "In a thread that you call me into, I read everything and answer what is meant for me",
    "mention": "I answer here only when I am mentioned",
    "quiet": "I stay quiet here until someone mentions me",
}
_ABILITIES = (
    ("execute_command", "run programs in a sandbox", True),
    ("create_file", "write files", True),
    ("browser_navigate_to", "use a browser", True),
    ("web_search", "search the web", False),
    ("scrape_webpage", "read web pages", False),
    ("see_image", "look at pictures", False),
    ("image_edit_or_generate", "draw pictures", False),
    ("deploy", "publish sites, after a question", True),
)
"""Tools, the ability that each gives the agent, and whether it needs a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePage:
    """A user's own page: their newest runs with the text of each request, a line for each of their schedules, the
    limits on cost, and the agent that works for them by default.

    Contains only the user's own runs. `abilities` lists what the agent can do. With `is_admin`, the page also has hints
    for admins, and `findings` are problems that the program found when it started."""

    runs: tuple[tuple[Run, Thread, str], ...]
    schedules: tuple[str, ...]
    limits: str
    agent: str
    abilities: str
    is_admin: bool
    findings: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether a run is active, so that the page will change."""
        return any(run.status in ACTIVE for run, *_ in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class GreetingsAndHome:
    """Builds greetings and users' pages.

    `claim` returns False for a key that was claimed before. `default_modes` holds the configured follow mode of each
    channel by its ID, and the default under "". `startup_findings` is filled at the end of the start."""

    claim: Callable[[str], Awaitable[bool]]
    commands: CommandDeps
    policy: AccessPolicy
    default_modes: Mapping[str, FollowMode]
    startup_findings: list[str] = field(default_factory=list[str])

    async def format_join_greeting(self, address: Address, mention: str) -> str:
        """Returns the greeting to post in a channel that the bot was invited to."""
        chosen = await self.commands.follow_modes.find_channel_mode(address)
        modes = self.default_modes
        mode = chosen or modes.get(address.channel_id) or modes[""]
        return (
            f"Hello! Mention me with what you need, for example `{mention} summarise this thread`."
            f" {_FOLLOWING[mode]}; `{mention} follow quiet channel` and the like change that."
            f" `{mention} help` lists the rest."
        )

    async def read_home_page(self, person: Person, address: Address, actor: ActorContext) -> HomePage:
        """Reads the user's page. `address` is their direct message with the bot. The user must have access."""
        deps = self.commands
        agents = await deps.roster.current_definitions()
        agent = agents[deps.roster.agent_in(address.channel_id)]
        does = [
            words
            for tool, words, needs_sandbox in _ABILITIES
            if agent.tools.has(tool) and not (needs_sandbox and deps.sandboxes is None)
        ]
        is_admin = self.policy.is_admin(address.workspace_id, person.person_id, actor)
        return HomePage(
            runs=await deps.conversations.runs_of_person(
                address.platform, address.workspace_id, person.person_id, limit=RUNS_MAX
            ),
            schedules=tuple(
                describe_schedule(one, single_line)
                for one in await deps.schedules.store.list_schedules(Selection.of_person(person.person_id, address))
            ),
            limits=await format_limits(person, address, deps.budget),
            agent=f"`{agent.agent_id}`: {agent.description}",
            abilities=", ".join(does),
            is_admin=is_admin,
            findings=tuple(self.startup_findings) if is_admin else (),
        )
