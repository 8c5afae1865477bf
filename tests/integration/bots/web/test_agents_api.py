"""Agents, their versions, knowledge and usage over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bots.inbound.commands.knowledge import KnowledgeDeps
from bots.web.deps import DEPS, AgentsDeps
from bots.web.upload_spool import UploadSource
from core.agents.definition import ReferableNames
from core.agents.files import AgentFiles
from core.agents.roster import Roster
from core.domain.budget import NO_BUDGET
from core.domain.ids import new_id
from core.knowledge.knowledge_base import KnowledgeBase, RunKnowledge
from core.tools.catalogue import all_tools
from storage.sql.stores.agents import SqlAgentVersions
from storage.sql.stores.audit import SqlAuditLog
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.knowledge import SqlKnowledge
from storage.sql.stores.usage import SqlLedger
from tests.databases import open_sqlite
from tests.support.narrow import require
from tests.support.web_stage import Stage, staged

WEEKLY = {"agent_id": "weekly-report", "name": "Weekly", "description": "Our report.", "prompt": "Go."}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    database = await open_sqlite(tmp_path / "stage.db")
    files = AgentFiles(known=ReferableNames(tools=frozenset(all_tools())))
    files.load()
    knowledge = KnowledgeDeps(
        knowledge_base=KnowledgeBase(store=SqlKnowledge(database)),
        conversations=SqlConversations(database),
        sources={"api": UploadSource(tmp_path / "uploads")},
        file_bytes_max=100_000,
        ledger=SqlLedger(database),
        charge=lambda _model, usage: usage,
        budget=NO_BUDGET,
    )
    roster = Roster(files=files, versions=SqlAgentVersions(database))
    agents = AgentsDeps(roster=roster, knowledge=knowledge, audit=SqlAuditLog(database))
    async with staged(tmp_path, agents=agents) as here:
        yield here
    await database.close()


def deps_of(stage: Stage) -> AgentsDeps:
    return require(stage.app[DEPS].agents)


async def versions(stage: Stage, agent_id: str) -> list[dict[str, Any]]:
    return (await stage.json("GET", f"/api/agents/{agent_id}/versions"))["versions"]


async def definition(stage: Stage, agent_id: str) -> dict[str, Any] | None:
    agents = (await stage.json("GET", "/api/agents"))["agents"]
    return next((one for one in agents if one["agent_id"] == agent_id), None)


async def test_an_agent_is_made_changed_compared_and_rolled_back(stage: Stage) -> None:
    assert await versions(stage, "coding") == []
    made = await stage.json("POST", "/api/agents", json=WEEKLY, status=201)
    assert (made["number"], made["definition"]["prompt"]) == (1, "Go.")
    changed = {**WEEKLY, "prompt": "Stop."}
    assert (await stage.json("POST", "/api/agents", json=changed, status=201))["number"] == 2
    assert [one["number"] for one in await versions(stage, "weekly-report")] == [1, 2]
    path = "/api/agents/weekly-report"
    diff = (await stage.json("GET", f"{path}/diff?from=1&to=2"))["diff"]
    assert diff.split("\n")[-2:] == ["-prompt: Go.", "+prompt: Stop."]
    back = await stage.json("POST", f"{path}/rollback", json={"number": 1})
    assert back["number"] == 1
    assert require(await definition(stage, "weekly-report"))["prompt"] == "Go."
    subjects = [one.subject for one in await deps_of(stage).audit.newest_entries(limit=3)]
    assert subjects == [f"weekly-report version {number}" for number in (1, 2, 1)]
    assert (await stage.http.delete(path)).status == 204
    assert await definition(stage, "weekly-report") is None
    assert (await stage.json("DELETE", path, status=404))["error"] == "agent_not_found"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "its name"),
        ({"agent_id": 5}, "agent_id must be a string"),
        ({"tools": {"enabled": ["root_shell"]}}, "there is no tool named 'root_shell'"),
        ({"mcp_servers": ["x"]}, "no MCP server named 'x' is set up"),
        ({"knowledge": ["../secrets"]}, "name files and folders relative to this file"),
        ({"knowledge": ["agents.db"]}, "only the agent's own file can name files"),
        ({"description": "a\u202eb"}, "one line of visible characters"),
    ],
)
async def test_a_bad_definition_is_refused(stage: Stage, fields: dict[str, object], problem: str) -> None:
    body = {**WEEKLY, **fields} if fields else {"name": "A", "description": "B"}
    refused = await stage.json("POST", "/api/agents", json=body, status=400)
    assert problem in refused["message"]
    assert await definition(stage, "weekly-report") is None


@pytest.mark.parametrize("number", [7, "1", True, -1])
async def test_only_a_version_that_is_there_comes_back(stage: Stage, number: object) -> None:
    await stage.json("POST", "/api/agents", json=WEEKLY, status=201)
    path, body = "/api/agents/weekly-report", {"number": number}
    refused = await stage.json("POST", f"{path}/rollback", json=body, status=404)
    assert refused["error"] == "version_not_found"
    assert (await stage.json("GET", f"{path}/diff?from=1&to=7", status=404))["error"] == "version_not_found"
    assert (await stage.http.get("/api/agents/nobody/versions")).status == 404


def form(*files: tuple[str, bytes]) -> aiohttp.FormData:
    made = aiohttp.FormData()
    for name, content in files:
        made.add_field("file", content, filename=name)
    return made


async def test_documents_of_a_thread_and_of_an_agent(stage: Stage) -> None:
    thread_id = await stage.thread()
    for owner in (f"thread_id={thread_id}", "agent_id=coding"):
        path = f"/api/knowledge?{owner}"
        sent = form(("menu.txt", b"Friday is fish."), ("broken.pdf", b"%PDF-nothing"))
        answer = await stage.json("POST", path, data=sent, status=201)
        (entry,) = answer["entries"]
        assert (entry["name"], entry["size_bytes"]) == ("menu.txt", 15)
        assert [one["name"] for one in answer["problems"]] == ["broken.pdf"]
        assert (await stage.json("GET", path))["entries"] == [entry]
        knowledge = RunKnowledge(
            knowledge_base=deps_of(stage).knowledge.knowledge_base,
            thread_id=thread_id if "thread" in owner else new_id(),
            agent_id="coding",
        )
        assert "Friday is fish." in await knowledge.render_relevant_entries("Friday?")
        other = f"/api/knowledge/{entry['entry_id']}?agent_id=research"
        assert (await stage.json("DELETE", other, status=404))["error"] == "entry_not_found"
        assert (await stage.http.delete(f"/api/knowledge/{entry['entry_id']}?{owner}")).status == 204
        assert (await stage.json("GET", path))["entries"] == []
    assert not [one for one in (stage.ports.spool_folder).rglob("*") if one.is_file()]


async def test_an_upload_that_adds_nothing_is_refused(stage: Stage) -> None:
    path = "/api/knowledge?agent_id=coding"
    broken = await stage.json("POST", path, data=form(("a.pdf", b"%PDF-")), status=400)
    assert broken["error"] == "not_added"
    assert "a.pdf: " in broken["message"]
    assert (await stage.json("POST", path, json={"text": "x"}, status=400))["error"] == "not_added"
    large = form(("a.txt", b"x" * (stage.ports.upload_bytes_max + 1)))
    assert (await stage.json("POST", path, data=large, status=413))["error"] == "too_large"
    assert (await stage.json("GET", path))["entries"] == []


async def test_usage_is_shown_in_all_and_of_a_thread(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        assert (await stage.http.get("/api/agents")).status == 404
        thread = await (await stage.http.post("/api/thread")).json()
        for query in ("", f"?thread_id={thread['thread_id']}"):
            usage = await (await stage.http.get(f"/api/usage{query}")).json()
            assert usage["input_tokens"] == usage["cost_usd"] == 0
        assert (await stage.http.get(f"/api/usage?thread_id={new_id()}")).status == 404
        assert (await stage.http.get("/api/usage?thread_id=x")).status == 404
