"""HTTP routes of agents, their versions, and the documents that agents and threads know."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from aiohttp import web

from bots.inbound.commands.knowledge import add_knowledge
from bots.web import request_parsing
from bots.web.deps import API_PERSON, API_PLACE, DEPS, AgentsDeps
from bots.web.errors import ApiError
from core.agents.definition import AgentDefinition, AgentVersion, compare_definitions
from core.domain.audit import AuditEntry
from core.domain.errors import ConfigurationError, RunError, ToolError
from core.domain.json import JsonObject
from core.knowledge.ports import KnowledgeEntry, Scope

_VERSION_MAX = 999_999


def routes() -> Sequence[web.RouteDef]:
    return (
        web.get("/api/agents", list_agents),
        web.post("/api/agents", save_agent),
        web.delete("/api/agents/{agent_id}", reset_agent),
        web.get("/api/agents/{agent_id}/versions", list_versions),
        web.get("/api/agents/{agent_id}/diff", compare_versions),
        web.post("/api/agents/{agent_id}/rollback", roll_back),
        web.get("/api/knowledge", list_knowledge),
        web.post("/api/knowledge", upload_knowledge),
        web.delete("/api/knowledge/{entry_id}", delete_knowledge),
    )


async def list_agents(request: web.Request) -> web.Response:
    """`GET /api/agents`: returns the current definitions of the agents."""
    agents = await _deps(request).roster.current_definitions()
    return web.json_response({"agents": [_agent_object(agent) for agent in agents.values()]})


async def save_agent(request: web.Request) -> web.Response:
    """`POST /api/agents`: makes the definition in the body the current version of its agent."""
    roster, fields = _deps(request).roster, await request_parsing.parse_json_object(request)
    agent_id = request_parsing.parse_text_field(fields, "agent_id", characters_max=100)
    values = {name: value for name, value in fields.items() if name != "agent_id"}
    try:
        version = await roster.make_current(
            await roster.check_definition(values, agent_id), at=API_PLACE, by=API_PERSON
        )
    except ConfigurationError as error:
        raise ApiError(400, "bad_agent", str(error)) from error
    return web.json_response(_version_object(version), status=201)


async def reset_agent(request: web.Request) -> web.Response:
    """`DELETE /api/agents/{agent_id}`: makes the definition in the agent's file current again. An agent without a file
    is deleted."""
    agent_id = request.match_info["agent_id"]
    if not await _deps(request).roster.versions.reset_to_file(agent_id, at=API_PLACE, by=API_PERSON):
        raise ApiError(404, "agent_not_found", "No such agent was saved over HTTP or in chat.")
    return web.Response(status=204)


async def list_versions(request: web.Request) -> web.Response:
    """`GET /api/agents/{agent_id}/versions`: returns all versions of the agent, oldest first."""
    versions = await _versions(request)
    return web.json_response({"versions": [_version_object(one) for one in versions.values()]})


async def compare_versions(request: web.Request) -> web.Response:
    """`GET /api/agents/{agent_id}/diff?from=&to=`: returns the lines that differ between two versions."""
    versions = await _versions(request)
    before, after = (
        _version(versions, request_parsing.parse_query_integer(request, name, default=0, largest=_VERSION_MAX))
        for name in ("from", "to")
    )
    return web.json_response({"diff": compare_definitions(before.definition, after.definition)})


async def roll_back(request: web.Request) -> web.Response:
    """`POST /api/agents/{agent_id}/rollback`: makes the version with the `number` in the body current again."""
    number = (await request_parsing.parse_json_object(request)).get("number")
    _version(await _versions(request), number)
    agent_id = request.match_info["agent_id"]
    try:
        version = await _deps(request).roster.roll_back(agent_id, int(str(number)), at=API_PLACE, by=API_PERSON)
    except ConfigurationError as error:
        raise ApiError(409, "bad_agent", str(error)) from error
    return web.json_response(version and _version_object(version))


async def list_knowledge(request: web.Request) -> web.Response:
    """`GET /api/knowledge?thread_id=` or `?agent_id=`: returns the documents that the thread or the agent knows."""
    scope = await _scope(request)
    agent = (await _deps(request).roster.current_definitions()).get(scope.owner_id)
    scopes = [scope, Scope("agent", scope.owner_id)] if agent and agent.knowledge else [scope]
    entries = await _deps(request).knowledge.knowledge_base.store.entries(scopes)
    return web.json_response({"entries": [_entry_object(entry) for entry in entries]})


async def upload_knowledge(request: web.Request) -> web.Response:
    """`POST /api/knowledge?thread_id=` or `?agent_id=`: adds the files of a multipart form.

    If only some files can be added, `problems` lists the others with the reasons."""
    scope, deps = await _scope(request), _deps(request)
    files = (await request_parsing.parse_message(request)).files
    added: list[JsonObject] = []
    problems: list[JsonObject] = []
    try:
        for file in files:
            try:
                entry = await add_knowledge(file, scope, API_PLACE, API_PERSON, deps.knowledge)
                added.append(_entry_object(entry))
            except (RunError, ToolError) as error:
                problems.append({"name": file.name, "message": str(error)})
    finally:
        request_parsing.discard_uploads(request, files)
    if not added:
        said = " ".join(f"{one['name']}: {one['message']}" for one in problems)
        raise ApiError(400, "not_added", said or "Send a multipart form with files.")
    await _record(request, f"add {', '.join(str(one['name']) for one in added)}")
    return web.json_response({"entries": added, "problems": problems}, status=201)


async def delete_knowledge(request: web.Request) -> web.Response:
    """`DELETE /api/knowledge/{entry_id}?thread_id=` or `?agent_id=`: removes a document that was added."""
    scope, entry_id = await _scope(request), request.match_info["entry_id"]
    if not await _deps(request).knowledge.knowledge_base.store.remove(scope, entry_id):
        raise ApiError(404, "entry_not_found", "No such document was added here.")
    await _record(request, f"remove {entry_id}")
    return web.Response(status=204)


def _deps(request: web.Request) -> AgentsDeps:
    deps = request.app[DEPS].agents
    if deps is None:
        raise ApiError(404, "no_agents", "This server knows no agents.")
    return deps


async def _versions(request: web.Request) -> Mapping[int, AgentVersion]:
    """Returns the versions of the agent in the URL path. Raises ApiError 404 if there is no such agent."""
    agent_id, roster = request.match_info["agent_id"], _deps(request).roster
    versions = await roster.versions.list_versions(agent_id)
    if not versions and agent_id not in await roster.current_definitions():
        raise ApiError(404, "agent_not_found", "There is no such agent.")
    return {version.number: version for version in versions}


def _version(versions: Mapping[int, AgentVersion], number: object) -> AgentVersion:
    found = versions.get(number) if type(number) is int else None
    if found is None:
        raise ApiError(404, "version_not_found", "The agent has no such version.")
    return found


async def _scope(request: web.Request) -> Scope:
    thread_id, agent_id = request.query.get("thread_id"), request.query.get("agent_id")
    if (thread_id is None) == (agent_id is None):
        raise ApiError(400, "bad_request", "Name a thread_id or an agent_id.")
    if thread_id is not None:
        if await request.app[DEPS].conversations.snapshot(thread_id) is None:
            raise ApiError(404, "thread_not_found", "There is no such thread.")
        return Scope("thread", thread_id)
    if agent_id not in await _deps(request).roster.current_definitions():
        raise ApiError(404, "agent_not_found", "There is no such agent.")
    return Scope("upload", str(agent_id))


async def _record(request: web.Request, subject: str) -> None:
    entry = AuditEntry(
        action="knowledge_changed", actor=API_PERSON, address=API_PLACE, subject=subject, happened_at=datetime.now(UTC)
    )
    await _deps(request).audit.record(entry)


def _agent_object(agent: AgentDefinition) -> JsonObject:
    return agent.model_dump(mode="json")


def _version_object(version: AgentVersion) -> JsonObject:
    return {
        "agent_version_id": version.agent_version_id,
        "number": version.number,
        "definition": _agent_object(version.definition),
    }


def _entry_object(entry: KnowledgeEntry) -> JsonObject:
    return {
        "entry_id": entry.entry_id,
        "name": entry.name,
        "kind": entry.kind,
        "size_bytes": entry.size_bytes,
        "tokens": entry.tokens,
        "created_at": entry.created_at.isoformat(),
    }
