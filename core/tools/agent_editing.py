"""The tool that makes and changes agents for an admin. Nothing is saved before an admin approves it."""

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from core.agents.definition import (
    DEFAULT_AGENT,
    DESCRIPTION_CHARACTERS_MAX,
    LIST_MAX,
    PROMPT_CHARACTERS_MAX,
    AgentDefinition,
    compare_definitions,
    definition_lines,
)
from core.agents.roster import Roster
from core.domain.call_consent import STAYS, Reach
from core.domain.errors import ConfigurationError, ToolError
from core.domain.json import JsonObject
from core.tools.tool import Tool, ToolContext

TRY_IT = """The draft can work; nothing is saved yet. Now try it: do a small example of its work here, exactly as its \
prompt says, and show people the result and the whole draft. Change what they want changed. When they say yes, call \
this again with the same draft and save true: an admin must approve it."""
_Name = Annotated[str, StringConstraints(max_length=100)]


class EditAgentParams(BaseModel):
    """Make or change an agent of this bot for an admin. Ask what it is for, then pass the whole draft, which is \
checked; with save an admin approves it. Without a prompt, returns the agent, or all."""

    agent_id: Annotated[str, StringConstraints(max_length=40)] = ""
    name: Annotated[str, StringConstraints(max_length=80)] = ""
    description: Annotated[str, StringConstraints(max_length=DESCRIPTION_CHARACTERS_MAX)] = ""
    prompt: Annotated[str, StringConstraints(max_length=PROMPT_CHARACTERS_MAX)] = Field(
        default="", description="Added to your own instructions."
    )
    model: Annotated[str, StringConstraints(max_length=200)] = ""
    tools: Annotated[list[_Name], Field(max_length=LIST_MAX)] | None = Field(
        default=None, description="Instead of the usual ones."
    )
    save: bool = False


def build_edit_agent(roster: Roster | None) -> Tool[EditAgentParams]:
    """Returns the tool that edits the agents of the roster. Without a roster, the tool refuses every call."""

    async def run(params: EditAgentParams, context: ToolContext) -> str:
        del context
        if roster is None:
            raise ToolError("Agents cannot be changed here.")
        agents = await roster.current_definitions()
        before = agents.get(params.agent_id)
        if not params.prompt:
            if before is not None:
                return "\n".join(definition_lines(before))
            missing = f"There is no agent {params.agent_id!r} yet. " if params.agent_id else ""
            listed = "\n".join(f"{name}: {one.description}" for name, one in agents.items())
            return f"{missing}The agents:\n{listed}"
        try:
            draft = await roster.check_definition(_fields(params, before, agents[DEFAULT_AGENT]), params.agent_id)
        except ConfigurationError as error:
            raise ToolError(f"{error}\nNothing is saved. Correct the draft.") from error
        if not params.save:
            whole = "\n".join(definition_lines(draft))
            changes = f"\n\nWhat changes:\n{compare_definitions(before, draft)}" if before else ""
            return f"{TRY_IT}\n\nThe draft of {params.agent_id}:\n{whole}{changes}"
        version = await roster.make_current(draft)
        return (
            f"Saved {params.agent_id} as version {version.number}. People choose it with `use {params.agent_id}` or"
            f" `agent:{params.agent_id}` at the start of a message."
        )

    return Tool(
        name="edit_agent",
        effect="acts",
        reach=lambda params: Reach("writes_outside", (params.agent_id,)) if params.save else STAYS,
        params=EditAgentParams,
        run=run,
        title=lambda params: f"Agent {params.agent_id}" if params.agent_id else "Agents",
        needs_approval=lambda params: f"Save the agent {params.agent_id}" if params.save and params.prompt else None,
        example={
            "agent_id": "weekly-report",
            "name": "Weekly report",
            "description": "Writes our weekly report.",
            "prompt": "You write the weekly report from the notes in this channel.",
        },
        requires=("agents",),
    )


edit_agent = build_edit_agent(None)


def _fields(params: EditAgentParams, before: AgentDefinition | None, usual: AgentDefinition) -> JsonObject:
    """Returns the fields of the draft. Fields that the tool has no parameter for keep their values."""
    kept: JsonObject = {"tools": {"disabled": [*usual.tools.disabled, "edit_agent"]}}
    if before is not None:
        kept = before.model_dump(mode="json", exclude_defaults=True)
    given = params.model_dump(include={"name", "description", "prompt", "model"})
    if params.tools is not None:
        given["tools"] = {"enabled": params.tools}
    kept.pop("agent_id", None)
    return {**kept, **given}
