"""The sections of a run's status message, within Discord's limits; pure functions."""

from bots.delivery.markdown import truncate
from bots.delivery.run_view import RunView, Task, TaskState, ViewState, keep_newest_tasks
from bots.discord.limits import remove_unsendable, to_single_line
from bots.discord.render.markdown import neutralize_links, neutralize_mentions
from core.domain.outside_text import quote_lines, utf16_length

ACCENT: dict[ViewState, int] = {
    "queued": 0x99AAB5,
    "working": 0x5865F2,
    "waiting": 0xFEE75C,
    "completed": 0x57F287,
    "asking": 0xFEE75C,
    "answered": 0x57F287,
    "silent": 0x57F287,
    "stopped": 0x99AAB5,
    "failed": 0xED4245,
    "limited": 0xE67E22,
}
TITLE: dict[ViewState, str] = {
    "queued": "⏳ Waiting for its turn",
    "working": "⚙️ Working",
    "waiting": "❓ Waiting for approval",
    "completed": "✅ Done",
    "asking": "❓ Asked a question",
    "answered": "✅ Question answered",
    "silent": "✅ Done",
    "stopped": "⏹️ Stopped",
    "failed": "❌ Failed",
    "limited": "⚠️ A limit was reached",
}
SIGN: dict[TaskState, str] = {"running": "▸", "started": "▹", "left": "▹", "done": "✓", "failed": "✗", "ended": "■"}
BOX: dict[str, str] = {"pending": "☐", "active": "▣", "done": "☑", "blocked": "⛔"}

TASKS_SHOWN = 10
TASKS_SHOWN_AT_END = 6
CHECKLIST_SHOWN = 15
HEADER_MAX = 260
CHECKLIST_MAX = 1300
TASKS_MAX = 1300
PREVIEW_MAX = 330
MESSAGE_MAX = 600


def status_sections(view: RunView) -> list[str]:
    """Returns the non-empty sections (header, checklist, tasks, preview, message), under 4,000 characters in total."""
    message = truncate(remove_unsendable(view.message).strip(), MESSAGE_MAX)
    header = f"**{TITLE[view.state]}**"
    if view.activity and view.state in ("queued", "working", "waiting"):
        header += f" · {to_single_line(view.activity, 160)}"
    if view.is_folded and view.summary:
        header += f" · {view.summary}"
    if view.turn > 1 and view.state == "working":
        header += f"\n-# step {view.turn}"
    texts = [truncate(header, HEADER_MAX), _checklist(view), _tasks(view), _preview(view)]
    return [neutralize_mentions(text) for text in (*map(neutralize_links, texts), message) if text]


def _checklist(view: RunView) -> str:
    if not view.checklist or view.is_folded:
        return ""
    items = view.checklist
    first = next((n for n, item in enumerate(items) if item.state != "done"), len(items))
    start = max(0, min(first - 3, len(items) - CHECKLIST_SHOWN))
    shown = items[start : start + CHECKLIST_SHOWN]
    lines = [f"**{to_single_line(view.checklist_title, 100) or 'Plan'}**"]
    if start:
        lines.append(f"-# {start} done before")
    lines += [f"{BOX[item.state]} {to_single_line(item.text, 120)}" for item in shown]
    rest = len(items) - start - len(shown)
    if rest:
        lines.append(f"-# and {rest} more")
    while len(lines) > 1 and utf16_length("\n".join(lines)) > CHECKLIST_MAX:
        lines = lines[:-1]
    return truncate("\n".join(lines), CHECKLIST_MAX)


def _tasks(view: RunView) -> str:
    if not view.tasks or view.is_folded:
        return ""
    shown_max = TASKS_SHOWN if view.state == "working" else TASKS_SHOWN_AT_END
    shown, _ = keep_newest_tasks(view.tasks, shown_max)
    while len(shown) > 1 and utf16_length("\n".join(map(_task, shown))) > TASKS_MAX - 40:
        shown, _ = keep_newest_tasks(shown, len(shown) - 1)
    earlier = view.tasks_dropped + len(view.tasks) - len(shown)
    lines = [f"-# {earlier} earlier step{'s' * (earlier != 1)}"] if earlier else []
    return truncate("\n".join([*lines, *map(_task, shown)]), TASKS_MAX)


def _task(task: Task) -> str:
    line = f"{SIGN[task.state]} {to_single_line(task.line, 170) or 'A step'}"
    detail = to_single_line((task.output or task.detail).replace("`", "'"), 120)
    return f"{line}\n-# {detail}" if detail else line


def _preview(view: RunView) -> str:
    if view.state != "working" or not view.preview.strip():
        return ""
    text = remove_unsendable(view.preview).replace("```", "'''").strip()
    return truncate(quote_lines("\n".join(text.splitlines()[-4:])), PREVIEW_MAX)
