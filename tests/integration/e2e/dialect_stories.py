"""One story as a model tells it: with calls, and with labelled lines."""

import json
from typing import Any

WAITING = "until [ -e go-1 ]; do sleep 0.05; done; cat uploads/numbers.csv"
WAITING_AGAIN = "until [ -e go-3 ]; do sleep 0.05; done; tr , + < uploads/numbers.csv"
"""The first turn of each run waits for its reader, so that all that follows is read live."""
QUESTION = "Which sum?"
ANSWER = "The sum is 42."
WRITTEN = "    42 < 43 && done\n"
END = ["Thought: That is it.\nFinal ", f"Answer: {ANSWER}"]

CALLS = f"""
conversations:
  - name: sums
    when: {{user: {{contains: "add up"}}, tools: [execute_command, ask, create_file, complete]}}
    steps:
      - text: "I look at the file first."
        calls:
          - name: execute_command
            arguments: {{command: "{WAITING}", blocking: true, timeout: 60}}
      - expect: {{tool: execute_command, success: true, last: {{contains: "20,22"}}}}
        text: "Two ways are open."
        calls: [{{name: ask, arguments: {{text: "{QUESTION}", options: ["of all", "of one"]}}}}]
      - expect: {{last: {{contains: "of all"}}}}
        calls:
          - name: execute_command
            arguments: {{command: "{WAITING_AGAIN}", blocking: true, timeout: 60}}
      - expect: {{tool: execute_command, success: true, last: {{contains: "20+22"}}}}
        text: "Then I write it down."
        calls: [{{name: create_file, arguments: {{file_path: sum.md, file_contents: "    42 < 43 && done\\n"}}}}]
      - expect: {{tool: create_file, success: true}}
        calls: [{{name: complete, arguments: {{text: "{ANSWER}", attachments: sum.md}}}}]
"""


def _action(name: str, thought: str = "", **arguments: Any) -> str:
    """An action in two pieces, cut in the middle of its label, as JSON."""
    first = f"Thought: {thought}\nAct" if thought else "Act"
    return json.dumps([first, f"ion: {name}\nAction Input: {json.dumps(arguments)}"])


LABELS = f"""
conversations:
  - name: sums
    when: {{user: {{contains: "add up"}}, system: {{contains: ["Action: execute_command", "Action: ask"]}}}}
    steps:
      - raw: {_action("execute_command", "I look at the file first.", command=WAITING, blocking=True, timeout=60)}
      - expect: {{tool: execute_command, last: {{contains: "20,22"}}}}
        raw: {_action("ask", "Two ways.", text=QUESTION, options=["of all", "of one"])}
      - expect: {{last: {{contains: "of all"}}}}
        raw: {_action("execute_command", command=WAITING_AGAIN, blocking=True, timeout=60)}
      - expect: {{tool: execute_command, last: {{contains: "20+22"}}}}
        raw: {_action("create_file", file_path="sum.md", file_contents=WRITTEN)}
      - expect: {{tool: create_file, success: true}}
        raw: {json.dumps(END)}
"""
