"""The main test scenario: a person sends a file, tools run, a question is answered, and files are returned."""

from bots.demo.thread_reader import text_of
from simulator.view import SentFile
from tests.chaos.harness import Stage
from tests.chaos.open_buttons import open_buttons_of

QUESTION = "Which form do you want?"
ANSWER = "All of it is done."
INTERRUPTED = "The run was interrupted while this ran"
FILES = ("report.md", "list.txt")
SCENARIO = f"""
conversations:
  - name: report
    when: {{user: {{contains: "Sum it up"}}}}
    steps:
      - text: "I look at the file."
        chunk_delay_seconds: 0.01
        calls:
          - name: execute_command
            arguments:
              command: "echo first >> marks.txt; echo scrap > scrap.txt; cat uploads/*.csv"
              blocking: true
              session_name: main
      - calls:
          - name: full_file_rewrite
            arguments: {{file_path: report.md, file_contents: "# Report"}}
          - name: delete_file
            arguments: {{file_path: scrap.txt}}
      - calls:
          - name: full_file_rewrite
            arguments: {{file_path: list.txt, file_contents: "1, 2, 3"}}
      - calls:
          - name: ask
            arguments: {{text: "{QUESTION}", options: [Long, Short]}}
      - text: "Then I finish it."
        calls:
          - name: execute_command
            arguments: {{command: "echo second >> marks.txt", blocking: true, session_name: main}}
      - calls:
          - name: terminate_command
            arguments: {{session_name: main}}
      - calls:
          - name: complete
            arguments: {{text: "{ANSWER}", attachments: [report.md, list.txt]}}
"""


async def tell(stage: Stage) -> None:
    """Plays the person, independently of failures of the program."""
    await stage.connected()
    table = SentFile(name="table.csv", content=b"a,b\n1,2\n", mime_type="text/csv")
    await stage.say("Sum it up, please.", files=(table,))
    await stage.choose("Short")
    await stage.until(lambda: _has_everything(stage), "the answer and its files arrive")


def _has_everything(stage: Stage) -> bool:
    names = {file.name for one in stage.ours() for file in one.files}
    return stage.shows(ANSWER) and names >= set(FILES) and stage.button("Stop") is None


def check(stage: Stage) -> None:
    """Checks that each message, file and run exists exactly once."""
    assert stage.runs() == ["completed", "completed"]
    assert stage.script.problems == []
    shown = stage.ours()
    _check_deliveries(stage)
    for text in (QUESTION, ANSWER):
        assert sum(text in text_of(one) for one in shown) == 1, text
    assert sorted(file.name for one in shown for file in one.files) == sorted(FILES)
    assert not any(open_buttons_of(one) for one in shown), "every button has done its work"
    assert stage.shown_before <= {one.message_id for one in shown}, "what was shown is still used"
    assert "Short" in _said_to_the_model(stage)
    _check_marks(stage)
    _check_reaction(stage)


def _check_deliveries(stage: Stage) -> None:
    """Checks that the agent's messages and the stored deliveries match one to one; files come with the answer, or alone
    if the process ended in between."""
    rows = stage.rows("SELECT slot, state, message_ref FROM delivery")
    assert {str(state) for _, state, _ in rows} == {"delivered"}
    slots = sorted(str(slot) for slot, _, _ in rows)
    assert slots == ["answer", "ask", "file", "file", "status", "status"]
    shown = [one.message_id for one in stage.ours()]
    assert len(rows) - len(FILES) <= len(shown) <= len(rows)
    is_named = {"discord": ("answer",), "slack": ()}[stage.name]
    sent = [str(ref) for slot, _, ref in rows if slot in ("status", "ask", *is_named)]
    assert len(set(sent)) == len(sent)
    assert set(sent) <= set(shown)


def _check_marks(stage: Stage) -> None:
    """Checks that each command that writes a mark ran once, or that the model knows that it may not have run."""
    marks = stage.workspace_file("marks.txt").split()
    assert len(marks) == len(set(marks)), marks
    if set(marks) != {"first", "second"}:
        assert INTERRUPTED in _said_to_the_model(stage)


def _said_to_the_model(stage: Stage) -> str:
    return str(stage.last_request())


def _check_reaction(stage: Stage) -> None:
    request = stage.messages()[0]
    assert request.message_id == stage.thread_id
    emojis = {one.emoji for one in request.reactions}
    assert emojis & {"white_check_mark", "✅", "question", "❓"}, emojis
    assert len(emojis) == 1, emojis
