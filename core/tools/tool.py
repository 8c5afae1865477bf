"""What a tool is: typed parameters, one async function, and what the model and the people see of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from core.dialects.dialect import ToolSpec
from core.domain.errors import ToolError
from core.domain.events import AgentEvent
from core.domain.messages import JsonObject, Message
from core.domain.plans import PlanStore
from core.domain.threads import Reply, Usage
from core.knowledge.knowledge_base import RunKnowledge
from core.observability import NO_METRICS, RunMetrics
from core.ports import Sandbox
from core.web_access.services import WebServices

ParamsT = TypeVar("ParamsT", bound=BaseModel)
TITLE_CHARACTERS_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may touch. `approved_tools` need no approval in this thread any more.
    `emit` tells people what has changed on the screen.
    `sandbox` starts the thread's machine on first use.

    `preview_url` answers a link under which people can open a page of the workspace, or None where nothing serves it.
    `port_url` answers one to a port of the sandbox.
    `takeover_url` makes a link on which one person can take over the browser, or None where there is none.
    `message` reads a stored message of this thread by its id, `history` all of them that models see. `knowledge` is
    what the run may look things up in.
    `outside` are the services of the world outside that the program has. `spent` books what a model that is asked
    beside the conversation has cost, by its name.
    """

    thread_id: str
    run_id: str
    approved_tools: frozenset[str] = frozenset()
    plans: PlanStore | None = None
    emit: Callable[[AgentEvent], None] | None = None
    sandbox: Callable[[], Awaitable[Sandbox]]
    preview_url: Callable[[str], str | None] = lambda _path: None
    port_url: Callable[[int], str | None] = lambda _port: None
    takeover_url: Callable[[], str | None] = lambda: None
    message: Callable[[str], Awaitable[Message | None]] | None = None
    history: Callable[[], Awaitable[Sequence[Message]]] | None = None
    knowledge: RunKnowledge | None = None
    outside: WebServices = field(default_factory=WebServices)
    figures: RunMetrics = NO_METRICS
    spent: Callable[[str, Usage], None] = lambda _model, _usage: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """A result that is more than text. `is_success` False: the tool ran and reports a failure.

    `error` says then what failed. `reply` ends the run with it; `messages` are stored before the tool's own.
    """

    output: JsonValue
    is_success: bool = True
    error: str = "The command reported a failure."
    reply: Reply | None = None
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Generic[ParamsT]):
    """One tool. The params model's docstring is its description for the model.

    `title` makes the line of the status message from validated parameters. `is_idempotent`: may run again after a
    crash that hid its result. `needs_approval` says in a line for people what
    they must allow first, or None. `content_parameter` is the text between the tags in the older XML form.
    """

    name: str
    params: type[ParamsT]
    run: Callable[[ParamsT, ToolContext], Awaitable[str | ToolOutput]]
    title: Callable[[ParamsT], str]
    example: JsonObject | None = None
    content_parameter: str | None = None
    is_idempotent: bool = False
    needs_approval: Callable[[ParamsT], str | None] | None = None
    timeout_seconds: float = 900

    def spec(self) -> ToolSpec:
        """The tool as the dialects describe it to a model."""
        return ToolSpec(
            name=self.name,
            description=" ".join((self.params.__doc__ or "").split()),
            parameters=_schema(self.params),
            example=self.example,
            content_parameter=self.content_parameter,
        )


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools that a run may use, by name."""

    tools: Mapping[str, Tool[Any]]
    specs: Mapping[str, ToolSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", {name: tool.spec() for name, tool in self.tools.items()})

    def only(self, has: Callable[[str], bool]) -> "Toolbox":
        """Those whose names are wanted."""
        kept = {name: tool for name, tool in self.tools.items() if has(name)}
        return self if len(kept) == len(self.tools) else Toolbox(kept)

    def and_also(self, more: Iterable[Tool[Any]]) -> "Toolbox":
        """With these tools too; none of them takes the place of one that is there."""
        added = {tool.name: tool for tool in more}
        return Toolbox({**added, **self.tools})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call that may run: the tool is known and the arguments fit it."""

    tool: Tool[Any]
    params: BaseModel
    title: str
    approval: str | None = None


def prepare(name: str, arguments: JsonObject, toolbox: Toolbox) -> Prepared:
    """Raises ToolError, written for the model, for an unknown tool or arguments that do not fit."""
    tool = toolbox.tools.get(name)
    if tool is None:
        known = ", ".join(sorted(toolbox.tools))
        raise ToolError(f"There is no tool named {name!r}. The tools are: {known}.")
    try:
        params = tool.params.model_validate(arguments)
    except ValidationError as error:
        problems = "; ".join(
            _problem(problem) for problem in error.errors(include_url=False, include_input=False)
        )
        raise ToolError(
            f"The arguments of {name} do not fit: {problems}. Nothing was run; call it again with the arguments right."
        ) from error
    title = " ".join(tool.title(params).split())[:TITLE_CHARACTERS_MAX]
    approval = tool.needs_approval(params) if tool.needs_approval else None
    return Prepared(tool=tool, params=params, title=title, approval=approval)


def _problem(problem: ErrorDetails) -> str:
    place = ".".join(str(part) for part in problem["loc"]) or "arguments"
    return f"{place}: {problem['msg'].removeprefix('Value error, ').rstrip('.')}"


_schemas: WeakKeyDictionary[type[BaseModel], JsonObject] = WeakKeyDictionary()
"""Each run puts its toolbox together anew, and making all schemas takes as long as two turns."""


def _schema(params: type[BaseModel]) -> JsonObject:
    known = _schemas.get(params)
    if known is None:
        known = _schemas[params] = _made_schema(params)
    return known


def _made_schema(params: type[BaseModel]) -> JsonObject:
    schema = params.model_json_schema()
    schema.pop("description", None)
    schema.pop("title", None)
    for one in schema.get("properties", {}).values():
        one.pop("title", None)
    schema.setdefault("properties", {})
    return schema
