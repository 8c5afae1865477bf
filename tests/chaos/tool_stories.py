"""Test scenarios with a tool server, a model behind litellm, or a jail."""

import json

from tests.chaos.harness import Stage
from tests.chaos.report_story import INTERRUPTED
from tests.chaos.stories import TALK, Story, check_talk, word
from tests.fakes.preloaded import command_of
from tests.paths import FAKES

GOES_WITHOUT = "There is no tool named"  # shown to the model if no server is ready in time
"""Part of the error for a missing tool. A resumed run does not wait long for a tool server that is starting."""
READY = "the MCP server fake is connected"
FAKE_SERVER = FAKES / "mcp_server.py"
ECHO = """
conversations:
  - name: echo
    when: {user: {contains: "Hello"}}
    steps:
      - calls: [{name: mcp_fake_echo, arguments: {text: "from afar", times: 2}}]
      - text: "Hi there."
"""
PLANNED = """
conversations:
  - name: planned
    when: {user: {contains: "Hello"}}
    steps:
      - calls:
          - name: planning
            arguments: {command: create, plan_id: p1, title: Greeting, steps: [Say it]}
      - text: "Hi there."
"""
SECRET = """
conversations:
  - name: secret
    when: {user: {contains: "Hello"}}
    steps:
      - calls: [{name: full_file_rewrite, arguments: {file_path: secret.txt, file_contents: "x"}}]
      - text: "Hi there."
"""


def with_tool_server(stage: Stage) -> None:
    """Configures an MCP server over stdio whose tools need approval."""
    place = stage.program.folder / "mcp.json"
    command, *arguments = command_of(str(FAKE_SERVER), "stdio")
    server = {"transport": "stdio", "command": command, "args": arguments, "needs_approval": ["*"]}
    place.write_text(json.dumps({"servers": {"fake": server}}))
    stage.program.change(mcp_config=str(place))


def with_planning_tool(stage: Stage) -> None:
    """Gives the default agent the tools that it has only if its file says so."""
    folder = stage.program.folder / "agents"
    folder.mkdir(exist_ok=True)
    (folder / "threadhand.yaml").write_text("name: Threadhand\ndescription: Plans.\n")
    stage.program.change(agents_dir=str(folder))


async def approve(stage: Stage) -> None:
    """Approves a tool call. Waits for the tool server first, because a run skips a server that is not ready."""
    await stage.connected()
    await stage.until(lambda: READY in stage.executor.log(), "the tool server is ready")
    await stage.say("Hello")
    await stage.until(lambda: stage.button("Approve once") or stage.shows("Hi there."), "it asks, or goes on")
    if stage.button("Approve once"):
        await stage.press("Approve once")
    await stage.until(lambda: stage.shows("Hi there."), "it answers")


def check_approved(stage: Stage) -> None:
    """Checks that the call was made after approval, or that the model knows that it may not have been made."""
    check_talk(stage)
    assert stage.runs() == ["completed"]
    told = str(stage.last_request()["messages"])
    assert any(one in told for one in ("from afarfrom afar", INTERRUPTED, GOES_WITHOUT))
    assert len(stage.rows("SELECT ask_id FROM pending_ask")) <= 1


async def talk(stage: Stage) -> None:
    await stage.connected()
    await stage.say("Hello")
    await stage.until(lambda: stage.shows("Hi there."), "it answers", seconds=90)


def check_planned(stage: Stage) -> None:
    """Checks that the plan is stored, or that the model knows that it may not be."""
    check_talk(stage)
    told = str(stage.last_request()["messages"])
    assert len(stage.rows("SELECT plan_id FROM plan")) == 1 or INTERRUPTED in told


def through_litellm(stage: Stage) -> None:
    """Configures a model provider whose address litellm reads from the environment."""
    stage.program.change(model="hosted_vllm/scripted", dialect="native", llm_base_url="", llm_api_key="")
    stage.program.environment["HOSTED_VLLM_API_BASE"] = stage.script.base_url


def check_forgotten(stage: Stage) -> None:
    check_talk(stage)
    assert stage.rows("SELECT thread_id FROM thread") == []
    assert list((stage.program.folder / "data" / "sandboxes").glob("**/secret.txt")) == []


TOOL_SERVER = Story(scenario=ECHO, tell=approve, check=check_approved, prepare=with_tool_server)
PLAN = Story(scenario=PLANNED, tell=talk, check=check_planned, prepare=with_planning_tool)
LITELLM = Story(scenario=TALK, tell=talk, check=check_talk, prepare=through_litellm)
FORGET_IN_A_JAIL = Story(
    scenario=SECRET,
    tell=word("forget yes", "Forgotten", "no conversation with me here"),
    check=check_forgotten,
    runs=0,
    sandbox="local",
)
FORGET_AT_MODAL = Story(
    scenario=SECRET,
    tell=word("forget yes", "Forgotten", "no conversation with me here"),
    check=check_forgotten,
    runs=0,
    sandbox="modal",
)
