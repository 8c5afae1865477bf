"""The chat command `agents`: lists and compares the versions of an agent, and lets admins restore one."""

from bots.inbound.actions import CommandCalled, Outcome
from core.agents.definition import AgentDefinition, AgentVersion, compare_definitions
from core.agents.roster import Roster, unknown_agent_message
from core.domain.approval import escape_invisible
from core.domain.errors import ConfigurationError

VERSIONS_SHOWN_MAX = 15
CHANGES_CHARACTERS_MAX = 1_400
"""A notice must fit into one message on every platform."""


async def answer_agents(called: CommandCalled, roster: Roster) -> Outcome:
    """Answers `agents VERB NAME [NUMBER] [NUMBER]`. The response is public if it changes the agent."""
    verb, name, *numbers = called.argument.lower().split()
    agents = await roster.current_definitions()
    versions = {one.number: one for one in await roster.versions.list_versions(name)}
    if not versions and name not in agents:
        return Outcome(notice=unknown_agent_message(name, agents))
    asked = [*map(int, numbers)]
    if not versions.keys() >= set(asked):
        listed = ", ".join(map(str, versions)) or "none yet"
        return Outcome(notice=f"`{name}` has no such version. Its versions: {listed}.")
    current = agents.get(name)
    match verb:
        case "versions":
            return Outcome(notice=_list(name, [*versions.values()], current))
        case "compare":
            after = versions[asked[1]].definition if len(asked) > 1 else current
            return Outcome(notice=_changes(compare_definitions(versions[asked[0]].definition, after)))
        case "rollback":
            number = asked[0]
            try:
                await roster.roll_back(name, number, at=called.address, by=called.person)
            except ConfigurationError as error:
                return Outcome(notice=f"Version {number} cannot work any more:\n{error}")
            notice = f"`{name}` works as version {number} from the next request on."
            return Outcome(notice=notice, is_private=False)
        case _:
            if not await roster.versions.reset_to_file(name, at=called.address, by=called.person):
                return Outcome(notice=f"`{name}` already is as its file says.")
            left = "is as its file says again" if name in roster.files.latest else "is gone"
            notice = f"`{name}` {left}. Its versions stay: `agents rollback` brings one back."
            return Outcome(notice=notice, is_private=False)


def _list(name: str, versions: list[AgentVersion], current: AgentDefinition | None) -> str:
    lines = [f"Versions of `{name}`, newest first:"]
    for at in range(len(versions) - 1, max(-1, len(versions) - 1 - VERSIONS_SHOWN_MAX), -1):
        version = versions[at]
        before = versions[at - 1].definition if at else None
        changed = compare_definitions(before, version.definition).split("\n")
        more = sum(line.startswith("+") for line in changed)
        less = sum(line.startswith("-") for line in changed)
        is_now = current is not None and version.content_hash == current.content_hash
        now = " (works now)" if is_now else ""
        lines.append(f"- {version.number}{now}: {more} lines more, {less} fewer")
    if len(versions) > VERSIONS_SHOWN_MAX:
        lines.append(f"- and {len(versions) - VERSIONS_SHOWN_MAX} older ones")
    return "\n".join(lines if versions else [f"`{name}` has not worked yet, so it has no versions."])


def _changes(changes: str) -> str:
    """Returns the changes in a code block, with invisible characters made visible. Counts the lines that do not fit."""
    if not changes:
        return "They are the same."
    shown: list[str] = []
    lines = [escape_invisible(line).replace("`", "'") for line in changes.split("\n")]
    room = CHANGES_CHARACTERS_MAX
    while len(shown) < len(lines) and len(lines[len(shown)]) < room:
        room -= len(lines[len(shown)]) + 1
        shown.append(lines[len(shown)])
    left = len(lines) - len(shown)
    more = f"\n{left} more lines do not fit here; `GET /api/agents` shows them all." if left else ""
    return "```diff\n" + "\n".join(shown) + f"\n```{more}"
