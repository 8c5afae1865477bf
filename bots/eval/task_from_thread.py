"""Turns a recorded thread into a task: what users said and sent, and what the agent did as the reference."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import yaml

from bots.bootstrap.sandboxes import build_sandboxes
from bots.eval.scripted_models import MENTION
from bots.settings import Settings
from core.context.untrusted_text import unwrap_message
from core.domain.errors import ConfigurationError, SandboxUnavailable, ToolError
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.ports import SandboxProvider
from simulator.threadbench.task import TASK_FILE
from storage.sql.database import opened_database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.sandboxes import SqlSandboxRecords

_FILE = re.compile(r"(?m)^\[?Attached file: /workspace/uploads/([^/\n]+?) \(")
_NOT_A_NAME = re.compile(r"[^a-z0-9]+")

log = logging.getLogger(__name__)


async def write_thread_as_task(settings: Settings, thread_id: str, out_dir: Path) -> str:
    """Writes the thread as a task to a folder in `out_dir`, and returns a sentence that says where it is, and which
    files of the users must be put beside it because the thread's sandbox does not have them.

    The checks are only a start: the last run completed and posted the files that it named. Raises ConfigurationError if
    there is no such thread, or the task exists already."""
    async with opened_database(settings.storage_url) as database:
        task, files = build_task(await SqlConversations(database).messages(thread_id))
        name = _NOT_A_NAME.sub("-", cast(str, task["title"]).lower()).strip("-")[:50].strip("-")
        folder = out_dir / f"{name or 'recorded'}-{thread_id[-8:]}"
        if folder.exists():
            raise ConfigurationError(f"{folder} exists already: move it away, or choose another --out.")
        folder.mkdir(parents=True)
        missing: tuple[str, ...] = ()
        if files:
            provider = (await build_sandboxes(settings, SqlSandboxRecords(database), are_left_running=True)).provider
            missing = await copy_uploads(provider, thread_id, files, folder)
            if provider is not None:
                await provider.close()
    content = yaml.safe_dump(task, allow_unicode=True, sort_keys=False, width=120)
    (folder / TASK_FILE).write_text(content, "utf-8")
    return f"Written to {folder}" + (f", without {', '.join(missing)}: put that there." if missing else ".")


async def copy_uploads(
    provider: SandboxProvider | None, thread_id: str, names: Iterable[str], folder: Path
) -> tuple[str, ...]:
    """Copies files that users sent in the thread out of its sandbox. Returns the names of the files that are gone or
    cannot be read."""
    missing: list[str] = []
    for name in names:
        try:
            if provider is None:
                raise SandboxUnavailable("There is no sandbox.")
            sandbox = await provider.open(thread_id, fence=0)
            content = b"".join([piece async for piece in sandbox.files.read(f"uploads/{name}")])
            (folder / Path(name).name).write_bytes(content)
        except (SandboxUnavailable, ToolError) as error:
            log.warning("the file %s of thread %s was not copied: %s", name, thread_id, error)
            missing.append(name)
    return tuple(missing)


def build_task(messages: Sequence[Message]) -> tuple[JsonObject, tuple[str, ...]]:
    """Returns the content of the `task.yaml`, and the names of the files that belong beside it.

    Raises ConfigurationError if no person says anything in the thread."""
    acts = [act for one in messages if one.type == "user" for act in _acts(one)]
    golden = [entry for one in messages if one.type == "assistant" for entry in _answers(one)]
    if not acts or not golden:
        raise ConfigurationError("There is no such thread, or nobody has said anything in it.")
    acts[0]["say"] = f"{MENTION} {str(acts[0]['say']).removeprefix('@threadhand ')}"
    files = tuple(dict.fromkeys(file for act in acts for file in cast(list[str], act["files"])))
    checks: list[object] = [{"ended": {"status": "completed"}}]
    checks += [{"posted": {"name": Path(path).name}} for path in _attachments(golden)]
    task = {
        "title": " ".join(str(acts[0]["say"]).removeprefix(MENTION).split())[:80],
        "area": "documents" if files else "must not ask",
        "acts": [{key: value for key, value in act.items() if value} for act in acts],
        "golden": golden,
        "checks": checks,
    }
    return cast(JsonObject, task), files


def _acts(message: Message) -> Iterator[dict[str, object]]:
    text = str(message.content.get("content") or "")
    _, start, wrapped = text.partition('<message from="')
    said = unwrap_message(start + wrapped) if start else ""
    files = _FILE.findall(text)
    if said or files:
        person = _NOT_A_NAME.sub("", str(message.metadata.get("author") or "alice").lower())
        yield {"by": person or "alice", "say": said or "Here are files.", "files": files}


def _answers(message: Message) -> Iterator[object]:
    """Yields the entry of the reference for an answer of the model: its calls if it has any, else its text."""
    text = str(message.content.get("content") or "")
    calls: list[object] = []
    for call in cast(list[JsonObject], message.content.get("tool_calls") or []):
        function = cast(JsonObject, call["function"])
        arguments = function["arguments"]
        told = json.loads(arguments) if isinstance(arguments, str) else arguments
        calls.append({str(function["name"]): told})
    if calls:
        yield [*([{"text": text}] if text else []), *calls]
    elif text:
        yield text


def _attachments(golden: Iterable[object]) -> list[str]:
    found: list[str] = []
    for entry in golden:
        for part in cast(list[JsonObject], entry) if isinstance(entry, list) else []:
            if isinstance(told := part.get("complete"), dict):
                named = told.get("attachments") or []
                found += named.split(",") if isinstance(named, str) else cast(list[str], named)
    return [path.strip() for path in found if not path.startswith("http")]
