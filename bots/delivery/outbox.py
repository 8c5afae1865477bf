"""Posts the results of a run to its thread: the answer in parts, the files, and the question to the user."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace

from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice
from bots.delivery.markdown import split_markdown
from bots.delivery.poster import DeliveryDeps, Poster
from core.domain.errors import AgentError, ToolError
from core.domain.threads import Run
from core.ports import OutgoingFile, Sandbox
from core.stores import Delivery, DeliveryDraft
from core.tools.workspace.paths import workspace_path

log = logging.getLogger(__name__)

PARTS_MAX = 3
WHOLE_ANSWER = "answer.md"
WHOLE_ANSWER_ORDINAL = 1000
TOO_LARGE = "is too large to post here"
WHY_REFUSED = {
    "too_large": TOO_LARGE,
    "empty_file": "is empty, and empty files cannot be posted here",
}


async def deliver_outbox(run: Run, poster: Poster, showroom: DeliveryDeps) -> None:
    """Posts the run's answer, then its files, then its question. Skips delivered items, so it is safe to repeat."""
    planned = await showroom.deliveries.plan(poster.rendering, [])
    for answer in [one for one in planned if one.slot == "answer" and one.ordinal == 0]:
        await _deliver_answer(answer, poster, showroom)
    for file in [
        one for one in planned if one.slot == "file" and one.ordinal != WHOLE_ANSWER_ORDINAL
    ]:
        await _deliver_file(file, run, poster, showroom)
    for ask in [one for one in planned if one.slot == "ask"]:
        await _deliver_ask(ask, poster, showroom)


async def _deliver_answer(answer: Delivery, poster: Poster, showroom: DeliveryDeps) -> None:
    text = str(answer.body.get("text", ""))
    parts = split_markdown(text, poster.surface.answer_limit)
    shown, is_cut = (parts, False) if len(parts) <= PARTS_MAX else (parts[:1], True)
    drafts = [DeliveryDraft(slot="answer", ordinal=n, body={}) for n in range(1, len(shown))]
    if is_cut:
        body = {"name": WHOLE_ANSWER}
        drafts.append(DeliveryDraft(slot="file", ordinal=WHOLE_ANSWER_ORDINAL, body=dict(body)))
    planned = await showroom.deliveries.plan(poster.rendering, drafts)
    for one in (one for one in planned if one.slot == "answer"):
        part = AnswerPart(markdown=shown[one.ordinal], part=one.ordinal + 1, parts=len(shown))
        await poster.show(one, part)
    for one in (
        one for one in planned if one.ordinal == WHOLE_ANSWER_ORDINAL and one.slot == "file"
    ):
        await poster.send_file(one, lambda: _text_file(WHOLE_ANSWER, text))


async def _deliver_file(file: Delivery, run: Run, poster: Poster, showroom: DeliveryDeps) -> None:
    """Uploads a file from the sandbox.

    If the file cannot be read or uploaded, posts a notice with the reason instead. The notice for a file that the
    platform does not accept, for example because of its size, includes a download link if links are available.
    """
    if poster.newest(file).state in ("delivered", "failed"):
        return
    path = str(file.body.get("path", ""))
    try:
        path = workspace_path(path)
        if showroom.sandboxes is None:
            raise AgentError("There is no sandbox here.")
        sandbox = await showroom.sandboxes.open(run.thread_id, fence=0)
        entries = await sandbox.files.list(path)
        is_file = len(entries) == 1 and entries[0].path == path and entries[0].kind == "file"
        if not is_file:
            raise ToolError("It is not a file.")
        size = entries[0].size_bytes
    except (AgentError, ToolError) as error:
        log.warning("a file of run %s cannot be read: %s", run.run_id, type(error).__name__)
        await _say(file, f"The file `{path}` could not be attached: {error}", poster, showroom)
        return
    why = TOO_LARGE
    if size <= poster.surface.file_bytes_max:
        refused = await poster.send_file(file, lambda: _sandbox_file(sandbox, path, size))
        if refused is None:
            return
        why = WHY_REFUSED.get(refused.code, "could not be posted here")
    link = showroom.link_for(run.thread_id, path)
    said = f"The file `{path}` {why}"
    await _say(file, f"{said}: {link}" if link else f"{said}.", poster, showroom)


async def _say(file: Delivery, markdown: str, poster: Poster, showroom: DeliveryDeps) -> None:
    """Posts a notice in place of the file."""
    notice = Notice(markdown=markdown, level="warning")
    record = poster.newest(file)
    if record.state == "attempting":
        # a refused upload leaves no message in the thread, so there is nothing to search for
        record = replace(record, state="pending", message_ref=None)
    await poster.show(record, notice)


async def _deliver_ask(ask: Delivery, poster: Poster, showroom: DeliveryDeps) -> None:
    content: Content = Notice(markdown=str(ask.body.get("text", "")))
    ask_id = ask.body.get("ask_id")
    if isinstance(ask_id, str) and (asked := await showroom.asks.ask(ask_id)) is not None:
        content = AskPrompt(ask=asked)
    await poster.show(ask, content)


def _sandbox_file(sandbox: Sandbox, path: str, size: int) -> OutgoingFile:
    name = path.rpartition("/")[2]
    return OutgoingFile(name=name, size_bytes=size, pieces=sandbox.files.read(path, length=size))


def _text_file(name: str, text: str) -> OutgoingFile:
    content = text.encode()

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    return OutgoingFile(name=name, size_bytes=len(content), pieces=pieces())
