"""Our MCP client as the official conformance suite drives it: `python mcp_conformance_client.py URL`."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import httpx2
from pydantic import JsonValue

from core.domain.errors import SandboxUnavailable, ToolError
from core.domain.json import JsonObject
from core.domain.messages import Message, ToolCall
from core.loop.calls import CallOutcome, execute_call
from core.mcp.servers import McpServers
from core.mcp.settings import McpServerConfig
from core.ports import Sandbox
from core.tools.tool import ThreadMessages, ToolContext, ToolSet, prepare_call

ENVIRONMENT = dict(os.environ)  # noqa: TID251 - the suite passes its scenario so
SCENARIO = ENVIRONMENT.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(ENVIRONMENT.get("MCP_CONFORMANCE_CONTEXT") or "{}")
REDIRECT = "http://localhost:3000/callback"
METADATA = "https://conformance-test.local/client-metadata.json"


async def no_sandbox() -> Sandbox:
    raise SandboxUnavailable("There is no sandbox here.")


async def authorize(link: str) -> str:
    """The person at the browser, who agrees at once."""
    async with httpx2.AsyncClient() as browser:
        return (await browser.get(link)).headers["location"]


def issuer_of(url: str) -> str:
    """What an operator looks up, too: whose tokens the server accepts."""
    parts = urlsplit(url)
    place = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    return httpx2.get(place).json()["authorization_servers"][0]


def config(url: str, folder: Path) -> McpServerConfig:
    oauth: dict[str, object] | None = None
    if "client-credentials" in SCENARIO:
        oauth = {
            "grant": "client_credentials",
            "client_id": CONTEXT["client_id"],
            "client_secret": CONTEXT.get("client_secret", ""),
            "private_key": CONTEXT.get("private_key_pem", ""),
            "signing_algorithm": CONTEXT.get("signing_algorithm", "ES256"),
            "issuer": issuer_of(url),
        }
    elif SCENARIO.startswith("auth/"):
        oauth = {
            "client_id": CONTEXT.get("client_id", ""),
            "client_secret": CONTEXT.get("client_secret", ""),
            "redirect_uri": REDIRECT,
            "client_metadata_url": METADATA,
            "token_folder": folder,
        }
    return McpServerConfig.model_validate({"name": "suite", "transport": "http", "url": url, "oauth": oauth})


def arguments_of(name: str) -> JsonObject:
    if name == "add_numbers":
        return {"a": 5, "b": 3}
    if name == "valid_tool":
        return {"region": "north"}
    calls: list[dict[str, Any]] = CONTEXT.get("toolCalls") or []
    return next((call["arguments"] for call in calls if call["name"] == name), {})


async def call(tools: ToolSet, name: str, arguments: JsonObject, told: list[Message]) -> CallOutcome | None:
    async def find(_message_id: str) -> Message | None:
        return None

    async def read_all() -> Sequence[Message]:
        return told

    context = ToolContext(
        thread_id="suite",
        run_id=f"run {len(told)}",
        sandbox=no_sandbox,
        messages=ThreadMessages(find=find, read_all=read_all),
    )
    asked = ToolCall(name=name, arguments=arguments, call_id="c")
    try:
        outcome = await execute_call(asked, prepare_call(name, arguments, tools), context)
    except ToolError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return None
    sys.stderr.write(f"{name}: {outcome.result}\n")
    content: dict[str, JsonValue] = {"content": str(outcome.result)}
    told.append(Message(type="tool", content=content, is_llm_message=True, thread_id="suite", run_id=context.run_id))
    return outcome


async def main(url: str, folder: Path) -> None:
    servers = McpServers([config(url, folder)], wait_seconds=60, authorize=authorize)
    told: list[Message] = []
    try:
        tools = ToolSet({tool.name: tool for tool in await servers.tools()})
        sys.stderr.write(f"{SCENARIO}: {list(tools.tools)} {servers.missing_servers()}\n")
        for name in tools.tools:
            arguments = arguments_of(name.removeprefix("mcp_suite_"))
            outcome = await call(tools, name, arguments, told)
            if outcome is not None and outcome.reply is not None:  # people answer in the next run
                await call(tools, name, {**arguments, "elicitation_answers": {}}, told)
    finally:
        await servers.close()


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        asyncio.run(main(sys.argv[1], Path(made)))
