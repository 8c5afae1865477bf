"""Defines the `Tool` class, the context that a tool runs in, and the validation of tool calls."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from pydantic import BaseModel, JsonValue, ValidationError

from core.context.todo_file import TodoTracker
from core.dialects.arguments import fit_arguments
from core.dialects.dialect import ToolSpec
from core.domain.approval import CallToApprove, Cause
from core.domain.call_consent import STAYS, Reach
from core.domain.errors import ToolError
from core.domain.events import AgentEvent
from core.domain.json import JsonObject, json_fields
from core.domain.messages import Message
from core.domain.plans import PlanStore
from core.domain.sources import NO_SOURCES, Origin, Sources, sources_read_now
from core.domain.threads import Person, Reply, Usage
from core.knowledge.knowledge_base import RunKnowledge
from core.observability import NO_METRICS, RunMetrics
from core.ports import Sandbox
from core.web_access.services import WebServices

P = ParamSpec("P")
ParamsT = TypeVar("ParamsT", bound=BaseModel)
Effect = Literal["reads", "writes", "acts"]
"""`reads`: changes nothing. `writes`: changes files or plans. `acts`: changes a session or something outside, or talks
to users."""
TITLE_CHARACTERS_MAX = 120

Requirement = Literal[
    "thread", "chat", "model", "sandbox", "port_links", "browser", "agents", "knowledge", "search", "page_reader",
    "image_model", "data_providers", "site_hosting",
]  # fmt: skip
"""The features that a tool can require. A run offers a tool only if everything that it requires is available.

`thread`: the conversation is stored. `chat`: the conversation is in a chat thread. `model`: tools can ask a model.
`port_links`: there are public links to the sandbox's ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadLinks:
    """Functions that create the links which a thread gives to people.

    Each function returns None if no link is available. `preview_url` opens a workspace file, `port_url` opens a port of
    the sandbox, and `takeover_url` lets one person take over the browser."""

    preview_url: Callable[[str], str | None] = lambda _path: None
    port_url: Callable[[int], str | None] = lambda _port: None
    takeover_url: Callable[[], str | None] = lambda: None

    def recording_links_to(self, record: Callable[[str], None]) -> "ThreadLinks":
        """Returns functions that create the same links and record each of them."""

        def record_each(create: Callable[P, str | None]) -> Callable[P, str | None]:
            def create_and_record(*arguments: P.args, **keywords: P.kwargs) -> str | None:
                if url := create(*arguments, **keywords):
                    record(url)
                return url

            return create_and_record

        return ThreadLinks(
            preview_url=record_each(self.preview_url),
            port_url=record_each(self.port_url),
            takeover_url=record_each(self.takeover_url),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMessages:
    """Functions that read the thread's stored messages.

    `find` returns one message by its id. `read_all` returns all messages that models see, oldest first. `chat` reads
    the chat thread itself, or is None without one."""

    find: Callable[[str], Awaitable[Message | None]]
    read_all: Callable[[], Awaitable[Sequence[Message]]]
    chat: "ThreadChat | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadChat:
    """Reads the run's chat thread. `read` returns the messages before a message id. `fetch_file` stores a message's
    file in the sandbox and returns a line with its path. Both raise ToolError."""

    read: Callable[[str], Awaitable[str]]
    fetch_file: Callable[[str], Awaitable[str]]


async def _has_no_budget() -> None:
    """The default for `check`."""


async def _hears_nobody() -> bool:
    """The default for `has_unread`."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBudget:
    """The budget for a tool that calls a model itself. `check` is called before each model call and raises
    BudgetExceeded if a limit is reached. `spent` is called after each model call with the model's name and usage."""

    check: Callable[[], Awaitable[None]] = _has_no_budget
    spent: Callable[[str, Usage], None] = lambda _model, _usage: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The services that a tool can use while it runs. A field that is None is not available in this run.

    `sandbox` starts the thread's sandbox on first use. `emit` publishes an event of the run, for example for the status
    message. `outside` holds the external services (search, page reader, ...). `metrics` records the run's metrics.
    `has_unread` returns whether users have written something that the run will read before its next turn. `must_answer`
    returns whether somebody who addressed the agent waits for a reply.
    `known_versions` holds the `file_version` of each workspace file as the model last read or wrote it. `todo` follows
    todo.md through the calls of the run. `web_results` holds what the run has found and read on the web. `opened_hosts`
    are the hosts to which calls of the run were allowed to send something. `approved_by` is the person who approved the
    call, if it needed approval."""

    thread_id: str
    run_id: str
    plans: PlanStore | None = None
    emit: Callable[[AgentEvent], None] = lambda _event: None
    sandbox: Callable[[], Awaitable[Sandbox]]
    links: ThreadLinks = ThreadLinks()
    messages: ThreadMessages | None = None
    knowledge: RunKnowledge | None = None
    outside: WebServices = field(default_factory=WebServices)
    metrics: RunMetrics = NO_METRICS
    budget: ToolBudget = ToolBudget()
    has_unread: Callable[[], Awaitable[bool]] = _hears_nobody
    must_answer: Callable[[], bool] = lambda: False
    known_versions: dict[str, str] = field(default_factory=dict[str, str])
    web_results: dict[str, object] = field(default_factory=dict[str, object])
    todo: TodoTracker = field(default_factory=TodoTracker)
    opened_hosts: set[str] = field(default_factory=set[str])
    approved_by: Person | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """The result of a tool that returns more than text.

    `is_success` is False if the tool ran but failed; `error` then describes the failure. A `reply` is posted to the
    thread and ends the run. `messages` are stored before the tool's own result message. `sources` are sources that only
    the result names, in addition to those that the reach of the call brings."""

    output: JsonValue
    is_success: bool = True
    error: str = "The command reported a failure."
    reply: Reply | None = None
    messages: tuple[Message, ...] = ()
    sources: Sources = NO_SOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Generic[ParamsT]):
    """One tool. The params model's docstring is its description for the model, unless `description` is given.

    `effect` decides which calls of one response may overlap. `reach` is where a call goes outside of the thread.
    `subject` names what a call uses, as a path such as `files/notes.md` or `shell/main`. An empty path means
    everything.

    `title` returns the line for the status message. `is_idempotent`: a call may run again after a crash that hid its
    result. `needs_approval` returns the headline of the question that users must answer first, or None. The arguments
    are shown below the headline, except those in `in_headline`, which the headline contains. `is_asked_each_time`:
    users cannot allow its calls for good. `commands` returns the commands of `CallToApprove`. `content_parameter` names
    the parameter that is the text between the tags in the older XML form. `described_by` is the source of the name and
    description if nobody vouches for them."""

    name: str
    effect: Effect
    reach: Reach | Callable[[ParamsT], Reach]
    params: type[ParamsT]
    run: Callable[[ParamsT, ToolContext], Awaitable[str | ToolOutput]]
    title: Callable[[ParamsT], str]
    subject: str | Callable[[ParamsT], str] = ""
    example: JsonObject | None = None
    content_parameter: str | None = None
    is_idempotent: bool = False
    needs_approval: Callable[[ParamsT], str | None] | None = None
    in_headline: frozenset[str] = frozenset()
    is_asked_each_time: bool = False
    commands: Callable[[ParamsT], Mapping[str, str]] | None = None
    timeout_seconds: float = 900
    requires: tuple[Requirement, ...] = ()
    description: str = ""
    described_by: Origin | None = None

    def build_spec(self) -> ToolSpec:
        """Returns the description of the tool that dialects send to the model."""
        return ToolSpec(
            name=self.name,
            description=self.description or " ".join((self.params.__doc__ or "").split()),
            parameters=_schema(self.params),
            example=self.example,
            content_parameter=self.content_parameter,
        )


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools that a run can use, by name."""

    tools: Mapping[str, Tool[Any]]
    specs: Mapping[str, ToolSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", {name: tool.build_spec() for name, tool in self.tools.items()})

    def sources(self, *, besides: Origin | None = None) -> Sources:
        """Returns the sources of the names and descriptions, which the model reads with every request, except the
        source `besides`."""
        return sources_read_now(
            *{tool.described_by for tool in self.tools.values() if tool.described_by not in (None, besides)}
        )

    def filter_names(self, has: Callable[[str], bool]) -> "ToolSet":
        """Returns a tool set that contains only the tools whose names `has` accepts."""
        kept = {name: tool for name, tool in self.tools.items() if has(name)}
        return self if len(kept) == len(self.tools) else ToolSet(kept)

    def with_replaced(self, others: Iterable[Tool[Any]]) -> "ToolSet":
        """Returns a tool set with these tools in place of those with the same names."""
        return ToolSet({**self.tools, **{tool.name: tool for tool in others if tool.name in self.tools}})

    def without(self, missing: Collection[Requirement]) -> "ToolSet":
        """Returns a tool set that contains only the tools that require nothing that is missing."""
        return self.filter_names(lambda name: set(missing).isdisjoint(self.tools[name].requires))

    def with_tools(self, more: Iterable[Tool[Any]]) -> "ToolSet":
        """Returns a tool set that also contains `more`. If two tools have the same name, the existing tool is kept.

        The added tools come last and in alphabetical order, so that adding or removing some changes only the end of a
        request's tools."""
        added = {tool.name: tool for tool in sorted(more, key=lambda tool: tool.name)}
        return ToolSet({**self.tools, **{name: tool for name, tool in added.items() if name not in self.tools}})


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A validated call: the tool exists and the arguments match its parameters.

    `approval` is the headline under which users are asked to approve the call, or None if what the call does needs no
    approval. `cause` is set if users are asked because of what the model has read. `sources` are the sources of what
    the model had read when it wrote the call. If they are None, the call leaves the network of the sandbox as it is."""

    tool: Tool[Any]
    params: BaseModel
    title: str
    approval: str | None = None
    reach: Reach = STAYS
    cause: Cause | None = None
    sources: Sources | None = None

    @property
    def needs_approval(self) -> bool:
        return self.approval is not None or self.cause is not None

    def to_approve(self, index: int = 0) -> CallToApprove:
        """Returns the call in the form that users approve. `index` is its place in the turn."""
        return CallToApprove(
            index=index,
            tool=self.tool.name,
            headline=self.approval or self.title,
            arguments=self.params.model_dump(mode="json"),
            given=frozenset(self.params.model_fields_set),
            in_headline=self.tool.in_headline,
            is_asked_each_time=self.tool.is_asked_each_time,
            cause=self.cause,
            commands=self.tool.commands(self.params) if self.tool.commands else {},
        )

    @property
    def subject(self) -> str:
        subject = self.tool.subject
        return subject if isinstance(subject, str) else subject(self.params)


Strategy = Literal["ordered", "parallel", "sequential"]


def must_wait_for(earlier: PreparedCall, later: PreparedCall, strategy: Strategy) -> bool:
    """Returns whether a call must not start before an earlier call of the same response has ended.

    With `ordered`, only reads overlap. With `parallel`, calls on different subjects overlap, too. With `sequential`,
    nothing overlaps."""
    if strategy == "sequential":
        return True
    if earlier.tool.effect == "reads" and later.tool.effect == "reads":
        return False
    shorter, longer = sorted((earlier.subject, later.subject), key=len)
    is_inside = not shorter or longer == shorter or longer.startswith(f"{shorter}/")
    # any command may use any file
    uses_files_and_shell = {shorter.partition("/")[0], longer.partition("/")[0]} == {"files", "shell"}
    return strategy == "ordered" or is_inside or uses_files_and_shell


def prepare_call(name: str, arguments: JsonObject, toolbox: ToolSet) -> PreparedCall:
    """Fits the arguments of a call to the tool's schema, and validates them.

    Raises ToolError, with a message for the model, if the tool is unknown or the arguments are invalid."""
    tool = toolbox.tools.get(name)
    if tool is None:
        known = ", ".join(sorted(toolbox.tools))
        raise ToolError(f"There is no tool named {name!r}. The tools are: {known}.")
    try:
        schema = toolbox.specs[name].parameters
        fitted = fit_arguments(arguments, schema)
        parameters = json_fields(schema.get("properties"))
        unknown = [argument for argument in fitted if argument not in parameters]
        # a forbidden argument is not dropped, because that could change what the call does; a tool without parameters
        # takes any
        if parameters and unknown and schema.get("additionalProperties") is False:
            raise ToolError(
                f"{name} has no parameter {unknown[0]!r}. Its parameters are: {', '.join(parameters)}. Nothing was run;"
                " call it again with these alone."
            )
        params = tool.params.model_validate(fitted)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'arguments'}:"
            f" {problem['msg'].removeprefix('Value error, ').rstrip('.')}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise ToolError(
            f"The arguments of {name} do not fit: {problems}. Nothing was run; call it again with the arguments right."
        ) from error
    title = " ".join(tool.title(params).split())[:TITLE_CHARACTERS_MAX]
    approval = tool.needs_approval(params) if tool.needs_approval else None
    reach = tool.reach if isinstance(tool.reach, Reach) else tool.reach(params)
    return PreparedCall(tool=tool, params=params, title=title, approval=approval, reach=reach)


_schemas: WeakKeyDictionary[type[BaseModel], JsonObject] = WeakKeyDictionary()
"""Caches the JSON schema of each params class, because every run builds its own tool set and generating all
schemas takes as long as two turns."""


def _schema(params: type[BaseModel]) -> JsonObject:
    known = _schemas.get(params)
    if known is None:
        schema = params.model_json_schema()
        is_ours = params.model_json_schema.__func__ is BaseModel.model_json_schema.__func__
        schema = cast(JsonObject, _without_details(schema) if is_ours else _without_titles(schema))
        schema.pop("description", None)
        schema.pop("title", None)
        schema.setdefault("properties", {})
        if is_ours:
            schema["additionalProperties"] = False
        known = _schemas[params] = schema
    return known


_DETAILS = frozenset(
    ("title", "format", "minimum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "additionalProperties")
)


def _without_titles(schema: JsonValue) -> JsonValue:
    """Returns a tool server's schema without titles, which generators derive from the names."""
    if isinstance(schema, list):
        return [_without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))
    }


_NO_DEFAULTS: tuple[JsonValue, ...] = (None, "", [])


def _without_details(schema: JsonValue) -> JsonValue:
    """Returns the schema without what costs tokens and does not help a model. Validation does not use this schema."""
    if isinstance(schema, list):
        return [_without_details(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    choices = schema.get("anyOf")
    others = [one for one in choices if one != {"type": "null"}] if isinstance(choices, list) else []
    if len(others) == 1 and isinstance(only := others[0], dict):
        schema = {**only, **{key: one for key, one in schema.items() if key != "anyOf"}}
    default = schema.get("default")
    is_default_shown = default not in _NO_DEFAULTS and default is not False
    properties = schema.get("properties")
    names = properties if isinstance(properties, dict) else {}
    kept: JsonObject = {
        key: _without_details(value)
        for key, value in schema.items()
        if key not in _DETAILS and key != "properties" and (key != "default" or is_default_shown)
    }
    if names:
        kept["properties"] = {name: _without_details(one) for name, one in names.items()}
    return kept
