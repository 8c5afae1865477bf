"""The agent for data: from a table in the thread to a chart in the thread, in the real program."""

import json

from simulator.view import SentFile
from tests.chaos.harness import PlatformName
from tests.integration.e2e.staging import BOTH, run_staged

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
