"""What a tool is: typed parameters, one async function, and what the model and the people see of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar
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

Requirement = Literal[
    "sandbox",
    "browser",
    "knowledge",
    "search",
    "page_reader",
    "image_model",
    "data_providers",
    "site_hosting",
]
"""What a tool cannot work without. A run offers a tool only if everything that it requires is available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadLinks:
    """Makes the links that a thread can give to people. Each function returns None if nothing serves such a link.

    `preview_url` opens a file of the workspace, `port_url` reaches a port of the sandbox, `takeover_url` lets one
    person take over the browser.
    """

    preview_url: Callable[[str], str | None] = lambda _path: None
    port_url: Callable[[int], str | None] = lambda _port: None
    takeover_url: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMessages:
    """Reads the thread's stored messages: one by its id, or all that models see, oldest first."""

    find: Callable[[str], Awaitable[Message | None]]
    read_all: Callable[[], Awaitable[Sequence[Message]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may use. None means that this run does not have it.

    `sandbox` starts the thread's sandbox on first use. `approved_tools` no longer need an approval in this thread.
    `emit` publishes an event of the run, for example for the status message. `outside` holds the external services
    (search, page reader, ...). `spent` records the usage of a model, by its name, that a tool called itself.
    """

    thread_id: str
    run_id: str
    approved_tools: frozenset[str] = frozenset()
    plans: PlanStore | None = None
    emit: Callable[[AgentEvent], None] | None = None
    sandbox: Callable[[], Awaitable[Sandbox]]
    links: ThreadLinks = ThreadLinks()
    messages: ThreadMessages | None = None
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
    requires: tuple[Requirement, ...] = ()

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
class ToolSet:
    """The tools that a run may use, by name."""

    tools: Mapping[str, Tool[Any]]
    specs: Mapping[str, ToolSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", {name: tool.spec() for name, tool in self.tools.items()})

    def only(self, has: Callable[[str], bool]) -> "ToolSet":
        """Those whose names are wanted."""
        kept = {name: tool for name, tool in self.tools.items() if has(name)}
        return self if len(kept) == len(self.tools) else ToolSet(kept)

    def with_tools(self, more: Iterable[Tool[Any]]) -> "ToolSet":
        """With these tools too; none of them takes the place of one that is there."""
        added = {tool.name: tool for tool in more}
        return ToolSet({**added, **self.tools})


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A call that may run: the tool is known and the arguments fit it."""

    tool: Tool[Any]
    params: BaseModel
    title: str
    approval: str | None = None


def prepare_call(name: str, arguments: JsonObject, toolbox: ToolSet) -> PreparedCall:
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
    return PreparedCall(tool=tool, params=params, title=title, approval=approval)


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
