"""Agent definitions: a role that is added to the base prompt, with a model, tools and knowledge."""

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self, cast

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import ErrorDetails

from core.domain.errors import ConfigurationError
from core.domain.model_options import NO_OPTIONS, ModelOptions

DEFAULT_AGENT = "threadhand"
PROMPT_CHARACTERS_MAX = 20_000
DESCRIPTION_CHARACTERS_MAX = 200
FILE_BYTES_MAX = 100_000
LIST_MAX = 100
TEAM_MAX = 10
AGENT_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_MODEL = re.compile(r"[A-Za-z0-9][\w.:@+-]*(?:/[\w.:@+-]+)*")


def _model_name(value: str) -> str:
    if value and not _MODEL.fullmatch(value):
        raise ValueError("a model is written as provider/name, for example openai/gpt-5")
    return value


def _inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\0" in value or not value.strip():
        raise ValueError("name files and folders relative to this file, without ..")
    return str(path)


def _agent_id(value: str) -> str:
    if not AGENT_ID.fullmatch(value):
        raise ValueError("an agent's name has at most 40 small letters, digits and -, and starts with no -")
    return value


Name = Annotated[str, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]
Names = Annotated[tuple[Name, ...], Field(max_length=LIST_MAX)]
AgentId = Annotated[str, AfterValidator(_agent_id)]


class ToolChoice(BaseModel):
    """Selects which of our own tools the agent has: all tools, or only those `enabled`, minus those `disabled`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: Names | None = None
    disabled: Names = ()

    def has(self, tool_name: str) -> bool:
        is_enabled = self.enabled is None or tool_name in self.enabled
        return is_enabled and tool_name not in self.disabled


class AgentDefinition(BaseModel):
    """The description of an agent. Fields that are left out have the value from the settings.

    `prompt` is added to the base prompt and never replaces it. If `mcp_servers` is None, the agent has all servers of
    the settings. `knowledge` names files and folders relative to the definition. An agent with the planning `flow`
    assigns the steps of a plan to the agents of the `team`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent_id: AgentId
    name: Annotated[str, StringConstraints(min_length=1, max_length=80, strip_whitespace=True)]
    description: Annotated[
        str, StringConstraints(min_length=1, max_length=DESCRIPTION_CHARACTERS_MAX, strip_whitespace=True)
    ]
    prompt: Annotated[str, StringConstraints(max_length=PROMPT_CHARACTERS_MAX)] = ""
    model: Annotated[str, StringConstraints(max_length=200), AfterValidator(_model_name)] = ""
    dialect: Literal["auto", "native", "xml", "react"] | None = None
    options: ModelOptions = NO_OPTIONS
    tools: ToolChoice = ToolChoice()
    mcp_servers: Names | None = None
    knowledge: Annotated[tuple[Annotated[str, AfterValidator(_inside)], ...], Field(max_length=LIST_MAX)] = ()
    flow: Literal["planning", "none"] = "none"
    team: Annotated[tuple[AgentId, ...], Field(max_length=TEAM_MAX)] = ()

    @model_validator(mode="after")
    def _team_fits(self) -> Self:
        if self.team and self.flow == "none":
            raise ValueError("team: it belongs to flow: planning")
        if self.agent_id in self.team:
            raise ValueError("team: an agent is no member of its own team")
        return self

    @property
    def content_hash(self) -> str:
        """A hash of all values that differ from the defaults, so that new keys in a release do not change the hash."""
        return hashlib.sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentVersion:
    """A stored version of an agent's definition; never deleted. `number` counts the agent's versions from 1."""

    agent_version_id: str
    number: int
    content_hash: str
    definition: AgentDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferableNames:
    """The names of the tools and MCP servers that agent definitions may refer to."""

    tools: frozenset[str]
    servers: frozenset[str] = frozenset()


def parse_definition(text: str, *, file: str, agent_id: str, known: ReferableNames) -> AgentDefinition:
    """Parses the YAML text of an agent file.

    Raises ConfigurationError with a sentence for each problem, which names the file and the key. `known` contains the
    tools and MCP servers that the definition may refer to."""
    if len(text) > FILE_BYTES_MAX:
        raise ConfigurationError(f"The agent file {file} has more than {FILE_BYTES_MAX} bytes.")
    try:
        whole: object = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigurationError(f"The agent file {file} is not YAML{line}: correct it.") from None
    except ValueError as error:
        raise ConfigurationError(
            f"The agent file {file} has a value that YAML cannot read: put it in quotes."
        ) from error
    if not isinstance(whole, dict):
        raise ConfigurationError(f"The agent file {file} must be a mapping with name, description and prompt.")
    fields = {str(key): value for key, value in cast(dict[object, object], whole).items()}
    if "agent_id" in fields:
        raise ConfigurationError(
            f"The agent file {file}: agent_id: the agent goes by the file's name; leave the key out."
        )
    return validate_definition(fields, source=f"The agent file {file}", agent_id=agent_id, known=known)


def validate_definition(
    fields: Mapping[str, object], *, source: str, agent_id: str, known: ReferableNames
) -> AgentDefinition:
    """Returns the definition with these values. Raises ConfigurationError with a sentence for each problem, which
    names `source` and the key."""
    try:
        definition = AgentDefinition.model_validate({**fields, "agent_id": agent_id})
    except ValidationError as error:
        problems = [_problem(one) for one in error.errors(include_url=False, include_input=False)]
    else:
        named = {"tools.enabled": definition.tools.enabled or (), "tools.disabled": definition.tools.disabled}
        problems = [
            f"{key}: there is no tool named {name[:80]!r}."
            for key, names in named.items()
            for name in names
            if name not in known.tools
        ]
        servers = (name for name in definition.mcp_servers or () if name not in known.servers)
        problems += [f"mcp_servers: no MCP server named {name[:80]!r} is set up." for name in servers]
        if not problems:
            return definition
    raise ConfigurationError("\n".join(f"{source}: {one}" for one in problems))


def definition_lines(definition: AgentDefinition | None) -> list[str]:
    """Returns everything that the definition sets, as lines for users. Without a definition there are none."""
    lines: list[str] = []
    values = definition.model_dump(mode="json", exclude_defaults=True) if definition else {}
    for key, value in values.items():
        if isinstance(value, str) and "\n" in value:
            lines += [f"{key}:", *(f"  {line}" for line in value.splitlines())]
        elif key != "agent_id":
            said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"{key}: {said}")
    return lines


def compare_definitions(before: AgentDefinition | None, after: AgentDefinition | None) -> str:
    """Returns the changed lines, which begin with - and +, with a line of context around them. Empty if nothing
    changed."""
    lines = difflib.unified_diff(definition_lines(before), definition_lines(after), lineterm="", n=1)
    return "\n".join("..." if line.startswith("@@") else line for line in list(lines)[2:])


_SAID = {
    "missing": "it is missing",
    "string_type": "it must be a text",
    "string_too_short": "it may not be empty",
    "string_too_long": "it may have at most {max_length} characters",
    "too_long": "it may have at most {max_length} entries",
    "tuple_type": "it must be a list",
    "literal_error": "it must be {expected}",
}


def _problem(problem: ErrorDetails) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    said = problem["msg"].removeprefix("Value error, ").rstrip(".")
    told, context = _SAID.get(problem["type"]), problem.get("ctx", {})
    if told is not None:
        said = told.format(**context)
    elif problem["type"] == "extra_forbidden":
        keys = ToolChoice.model_fields if "." in place else AgentDefinition.model_fields
        known = ", ".join(key for key in keys if key != "agent_id")
        said = f"there is no such key; the keys are {known}"
    place = "its name" if place == "agent_id" else place
    return f"{place}: {said}." if place else f"{said}."
