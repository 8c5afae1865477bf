"""Agents at work in a thread: a table that becomes a chart, and a plan that people change."""

import json
from pathlib import Path

from bots.demo.thread_reader import text_of
from simulator.view import SentFile
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.e2e.staging import BOTH, run_staged

SCENARIO = """
conversations:
  - name: plan
    when: {user: {contains: "Make a plan for what"}}
    steps:
      - expect: {tools: [planning], lacks_tools: [execute_command]}
        calls:
          - name: planning
            arguments:
              command: create
              plan_id: any
              title: Counting
              steps: ["[coding] Count the apples", "[research] Look the pears up"]
  - name: apples
    when: {user: {contains: "You work on step 1 now"}}
    steps:
      - expect: {system: {contains: "You write and repair programs."}, lacks_tools: [planning]}
        calls:
          - name: execute_command
            arguments: {command: "touch begun; until [ -e go ]; do sleep 0.05; done", blocking: true, timeout: 60}
      - text: "There are three apples."
  - name: pears
    when: {user: {contains: "You work on step 2 now"}}
    steps:
      - expect: {system: {contains: "You find things out."}, lacks_tools: [execute_command]}
        text: "There are four pears."
  - name: plums
    when: {user: {contains: "You work on step 3 now"}}
    steps:
      - text: "There are no plums."
  - name: report
    when: {user: {contains: "The plan has come to its end"}}
    steps:
      - expect: {last: {contains: "There are no plums."}}
        text: "Seven in all."
"""
ACTIVE = {"slack": "▸", "discord": "▣"}


async def begun(stage: Stage) -> None:
    """Until the first step's command runs, and people see so."""
    stage.program.start()
    await stage.connected()
    await stage.say("agent:planner Count the fruit, please.")
    folder = stage.program.folder / "data" / "sandboxes"
    await stage.until(lambda: list(folder.glob("**/begun")), "the first step is at work")
    await stage.until(lambda: f"{ACTIVE[stage.name]} [coding] Count the apples" in status(stage), "it is seen")


def go(stage: Stage) -> None:
    (place,) = (stage.program.folder / "data" / "sandboxes").glob("**/begun")
    (Path(place).parent / "go").touch()


def status(stage: Stage) -> str:
    """The status message without the signs of its markup."""
    texts = [text_of(one) for one in stage.ours() if "Counting" in text_of(one)]
    return texts[0].replace("*", "").replace("\\", "") if texts else ""


async def add_a_step(stage: Stage, *, by_word: bool = True) -> None:
    """As people of the platform do: a word after a mention, or a slash command."""
    if by_word:
        await stage.say(f"@{stage.view().bot_name} plan add Count the plums")
    else:
        await stage.platform.command(
            PERSON,
            stage.channel_id,
            "agent plan",
            {"action": "add", "step": "Count the plums"},
            thread_id=stage.thread_id,
        )
    await stage.until(lambda: stage.shows("3. [ ] Count the plums"), "it is told")


@BOTH
async def test_the_plan_is_a_live_checklist_that_people_change(platform: PlatformName) -> None:
    async with staged(platform, SCENARIO) as stage:
        await begun(stage)
        assert "☐ [research] Look the pears up" in status(stage)
        await add_a_step(stage, by_word=platform == "slack")
        go(stage)
        await stage.until(lambda: stage.shows("Seven in all."), "it answers")
        await stage.settled(1)
        assert "3 of 3 tasks" in next(text for one in stage.ours() if "Done" in (text := text_of(one)))
        done = (await stage.details()).replace("\\", "")
        assert [sign for sign in done if sign in "☐☑☒⛔▸▣"] == ["☑"] * 3, done
        assert "☑ Count the plums (There are no plums.)" in done
        assert stage.script.problems == []


DRAW = """
import csv
rows = list(csv.DictReader(open("uploads/sales.csv")))
bars = "".join(
    f"<rect x='{40 * at}' y='{100 - int(row['sales'])}' width='30' height='{row['sales']}'/>"
    f"<text x='{40 * at}' y='115'>{row['city']}</text>"
    for at, row in enumerate(rows)
)
open("sales.svg", "w").write(f"<svg xmlns='http://www.w3.org/2000/svg' width='120' height='120'>{bars}</svg>")
csv.DictWriter(open("sales-charted.csv", "w"), ["city", "sales"]).writerows(rows)
"""
ANALYSIS = f"""
conversations:
  - name: chart
    when:
      user: {{contains: "Chart the sales"}}
      system: {{contains: ["You answer questions from data", "import matplotlib"]}}
    steps:
      - calls: [{{name: create_file, arguments: {{file_path: draw.py, file_contents: {json.dumps(DRAW)}}}}}]
      - expect: {{tool: create_file, success: true}}
        calls: [{{name: execute_command, arguments: {{command: "python3 draw.py", blocking: true}}}}]
      - expect: {{tool: execute_command, success: true}}
        calls:
          - name: complete
            arguments: {{text: "Rome sold most: 50.", attachments: [sales.svg, sales-charted.csv]}}
"""


@BOTH
async def test_the_data_analyst_posts_its_chart_in_the_thread(platform: PlatformName) -> None:
    async with run_staged(platform, ANALYSIS) as stage:
        table = SentFile(name="sales.csv", content=b"city,sales\nOslo,30\nRome,50\n")
        await stage.say("agent:data-analysis Chart the sales, please.", files=(table,))
        await stage.until(lambda: stage.shows("Rome sold most: 50."), "it answers")
        await stage.settled(1)
        assert stage.script.problems == []
        names = {one.name for message in stage.ours() for one in message.files}
        assert names == {"sales.svg", "sales.svg.png", "sales-charted.csv"}
        assert stage.rows("SELECT agent_id, status FROM run") == [("data-analysis", "completed")]
