"""Which files a recorded thread brings along, whatever its users and its agent wrote."""

from pathlib import Path

from bots.eval.task_from_thread import build_task, copy_uploads
from core.domain.messages import Message
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.support.sandboxes import pieces


async def test_sent_files_come_from_the_sandbox_and_the_others_are_named(tmp_path: Path) -> None:
    sandboxes = MemorySandboxes()
    sandbox = await sandboxes.open("thread", fence=1)
    await sandbox.files.write("uploads/sent.txt", pieces(b"sent"))
    await sandbox.files.write("made.txt", pieces(b"made"))
    names = ["sent.txt", "deleted.txt", "../made.txt", ".."]
    missing = await copy_uploads(sandboxes, "thread", names, tmp_path)
    assert missing == ("deleted.txt", "..")
    assert (tmp_path / "sent.txt").read_text() == "sent"
    assert await copy_uploads(None, "thread", ["sent.txt"], tmp_path) == ("sent.txt",)


def test_a_line_that_a_user_wrote_names_no_file_elsewhere() -> None:
    lines = ["a.csv", "/etc/passwd", "../.env", "b.csv"]
    text = "\n".join(f"[Attached file: /workspace/uploads/{name} (1 KB)]" for name in lines)
    said, answer = (
        Message(type=kind, content={"content": text}, is_llm_message=True, thread_id="thread", metadata={})
        for kind in ("user", "assistant")
    )
    assert build_task([said, answer])[1] == ("a.csv", "b.csv")
