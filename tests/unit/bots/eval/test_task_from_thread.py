"""Which files a recorded thread brings along, whatever its users and its agent wrote."""

from pathlib import Path

from bots.eval.task_from_thread import build_task, copy_uploads
from core.domain.messages import Message


def test_only_files_of_the_thread_are_copied(tmp_path: Path) -> None:
    secret, uploads = tmp_path / "secret.txt", tmp_path / "sandboxes/slack/thread/files/uploads"
    secret.write_text("secret")
    uploads.mkdir(parents=True)
    (uploads / "sent.txt").write_text("sent")
    (uploads / "other.txt").write_text("other")
    (uploads / "link.txt").symlink_to(secret)
    led_out = tmp_path / "sandboxes/discord/thread/files"
    led_out.mkdir(parents=True)
    (led_out / "uploads").symlink_to(tmp_path)
    folder = tmp_path / "task"
    folder.mkdir()
    copy_uploads(tmp_path / "sandboxes", "thread", ["sent.txt", "link.txt", "secret.txt", "../secret.txt"], folder)
    assert {file.name: file.read_text() for file in folder.iterdir()} == {"sent.txt": "sent"}


def test_a_line_that_a_user_wrote_names_no_file_elsewhere() -> None:
    lines = ["a.csv", "/etc/passwd", "../.env", "b.csv"]
    text = "\n".join(f"[Attached file: /workspace/uploads/{name} (1 KB)]" for name in lines)
    said, answer = (
        Message(type=kind, content={"content": text}, is_llm_message=True, thread_id="thread", metadata={})
        for kind in ("user", "assistant")
    )
    assert build_task([said, answer])[1] == ("a.csv", "b.csv")
