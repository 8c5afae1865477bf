"""Posts the results of a run to its thread: the answer in parts, the files, and the question to the user. If the thread
refuses them, tells users elsewhere."""

import asyncio
import csv
import io
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.delivery.markdown import (
    markdown_to_words,
    normalize_model_markdown,
    scan_blocks,
    split_markdown,
    split_table_row,
)
from bots.delivery.poster import AttachedFile, DeliveryDeps, Poster, is_probe_notice
from bots.delivery.run_view import RunView
from core.domain.approval import is_allowed
from core.domain.errors import RunError, SurfaceError, SurfaceRateLimited, SurfaceRefused, ToolError
from core.domain.threads import Run
from core.ports import OutgoingFile, Sandbox, SandboxProvider
from core.stores import REPLY_ORDINALS, Delivery, DeliveryDraft, DeliveryLease
from core.tools.workspace.paths import workspace_path

log = logging.getLogger(__name__)

STATUS = DeliveryDraft(slot="status", body={})
PARTS_MAX = 3
WHOLE_ANSWER = "answer.md"
WHOLE_ANSWER_ORDINAL = 1000
"""The ordinal of the file with the whole answer. Files of the sandbox have smaller ordinals."""
TABLE_ORDINAL = 100_000
"""The ordinal of the first CSV file, after all other files of a reply."""
QUESTION_ORDINAL = 200_000
"""The ordinal of the first file of the run's first question, after all files of its first reply."""
QUESTION_ORDINALS = 200
"""More than the number of messages for the longest approval, even if it is all backticks and the messages are as short
as on any platform."""
TABLE_FILES_MAX = 3
TABLE_ROWS_SHOWN_MAX = 100
TABLE_COLUMNS_SHOWN_MAX = 20
"""A table with more rows or columns is also posted as a CSV file, because Slack does not show it as a data table."""
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*")
OPTIONS_SHOWN_MAX = 400
"""A question with more options also lists them in a file, because a menu may not show them all."""
FILES_SECONDS = 20.0
"""How long an answer waits for the sandbox with its files. After that, it is posted without them."""
ORDER_SECONDS_MAX = 900.0
ORDER_LOOK_SECONDS = 0.25
"""ORDER_SECONDS_MAX is how long results wait for those of the thread's earlier runs, and ORDER_LOOK_SECONDS how often
these are checked. The limit is for an earlier run that is not delivered because of a fault. Rate limits and outages
hold up the later run as well."""
_MARKS = frozenset("*_~`[]<>\\&")
NO_STYLES = str.maketrans("", "", "*_~`|<>[]\\")
"""Removes the characters that style or link words on either platform."""
REST_IN_FILE = f"\n\n_This is the beginning. The whole answer is in the file `{WHOLE_ANSWER}`._"
TOO_LARGE = "is too large to post here"
WHY_REFUSED = {
    "too_large": TOO_LARGE,
    "empty_file": "is empty, and empty files cannot be posted here",
    "50013": "could not be attached, because I need the permission “Attach Files” here",
    "missing_scope": "could not be attached, because the app lacks the permission `files:write`",
}
"""Why a file is not in the thread, by the platform's error code. 50013 is a code of Discord, missing_scope one of
Slack."""
NOT_POSTED = "could not be posted here"


async def wait_for_earlier_runs(rendering: DeliveryLease, deps: DeliveryDeps) -> None:
    """Waits until the earlier runs of the thread are delivered, so that users read the answers in order."""
    if not rendering.has_earlier:
        return
    try:
        async with asyncio.timeout(ORDER_SECONDS_MAX):
            while await deps.deliveries.has_earlier(rendering.run.run_id):  # noqa: ASYNC110 - other processes deliver, too
                await asyncio.sleep(ORDER_LOOK_SECONDS)
    except TimeoutError:
        log.warning(
            "run %s is shown before an earlier one of its thread, which was not delivered in %.0f s",
            rendering.run.run_id,
            ORDER_SECONDS_MAX,
        )


async def deliver_outbox(run: Run, poster: Poster, deps: DeliveryDeps) -> tuple[Delivery, ...]:
    """Posts the run's replies in order, each with its files, and then its questions. Files that do not fit into a
    reply's message are uploaded after it. Skips what is already delivered, so it is safe to repeat.

    Returns all deliveries of the run, as they were stored before."""
    planned = await poster.plan_deliveries([])
    for number in sorted({one.ordinal // REPLY_ORDINALS for one in planned}):
        reply = _of_reply(planned, number)
        for answer in [one for one in reply if one.slot == "answer" and _place(one) == 0]:
            await _deliver_answer(answer, reply, run, poster, deps)
        for file in [one for one in reply if one.slot == "file" and _place(one) < WHOLE_ANSWER_ORDINAL]:
            await _deliver_file(file, run, poster, deps)
    for ask in [one for one in planned if one.slot == "ask"]:
        await _deliver_ask(ask, poster, deps)
    return planned


def _of_reply(planned: Sequence[Delivery], number: int) -> list[Delivery]:
    """Returns the answers and files of the run's reply with this number, and the stream if it is the first reply."""
    return [
        one for one in planned if one.ordinal // REPLY_ORDINALS == number and one.slot in ("answer", "file", "stream")
    ]


def _place(one: Delivery) -> int:
    """Returns the place of an answer or file within its reply."""
    return one.ordinal % REPLY_ORDINALS


async def close_open_deliveries(planned: Sequence[Delivery], poster: Poster) -> None:
    """Ends the stream of a run that posted no answer in its place. The streamed text stays.

    Also drops the notice about a message that failed, if that message was posted after all."""
    for one in planned:
        if one.slot == "stream":
            await poster.finish_stream(one)
        elif is_probe_notice(one):
            await poster.mark_done(one)


async def show_final_status(view: RunView, poster: Poster, deps: DeliveryDeps, *, may_wait: bool) -> None:
    """Shows the end of a run in its status message, or in a new message if the old one can no longer be edited. Unless
    `may_wait`, a status message that would have to wait is not posted, so that no answer waits for it."""
    run_id = poster.rendering.run.run_id
    final = RunStatus(run_id=run_id, view=await _finish_view(view, run_id, deps))
    status = await poster.plan_delivery(STATUS)
    try:
        await poster.post_or_edit(status, final, may_wait=may_wait)
    except SurfaceRateLimited:
        log.info("run %s ends without a status message, because others wait to be posted", run_id)
        await poster.mark_done(status)
    if (shown := poster.latest_record(status)).state == "failed" and shown.message_ref:
        again = await poster.plan_delivery(replace(STATUS, ordinal=1))
        await poster.post_or_edit(again, final)
        if poster.latest_record(again).state == "delivered":
            with suppress(SurfaceError):  # somebody may have deleted it
                await poster.surface.delete(poster.address, shown.message_ref)


async def _finish_view(view: RunView, run_id: str, deps: DeliveryDeps) -> RunView:
    """Returns the view of an ended run with its duration and cost, or with the name of whoever stopped it. If the
    question of the run was answered, the state becomes `answered`."""
    found = await deps.conversations.run_with_thread(run_id)
    if (
        found
        and view.state == "stopped"
        and (name := await deps.conversations.find_stopper_name(found[1].address, run_id))
    ):
        return replace(view, message=f"{name.translate(NO_STYLES)} stopped this. {view.message}")
    if found is None or not view.is_folded:
        return view
    run, usage = found[0], await deps.conversations.usage(run_id=run_id)
    if view.state == "asking":
        asked = await deps.asks.ask_of_run(run_id)
        view = replace(view, state="answered") if asked and asked.state == "answered" else view
    began, ended = run.started_at or run.created_at, run.finished_at
    seconds = max(0.0, (ended - began).total_seconds()) if ended else 0.0
    return replace(view, seconds=seconds, cost_usd=usage.cost_usd)


async def _deliver_answer(
    answer: Delivery, planned: Sequence[Delivery], run: Run, poster: Poster, deps: DeliveryDeps
) -> None:
    """Posts the answer in parts, the last of them with the run's files. A very long answer is uploaded as a file,
    followed by a message with its beginning.

    If the platform refuses the file, all parts are posted."""
    text, start = str(answer.body.get("text", "")), answer.ordinal
    planned, parts = await _plan_parts(answer, planned, poster)
    rows = sorted((one for one in planned if one.slot == "answer"), key=_place)
    for at, (one, markdown) in enumerate(zip(rows, parts, strict=False)):
        is_end = at + 1 == len(parts)
        part = AnswerPart(markdown=markdown, part=at + 1, parts=len(parts), run_id=run.run_id if is_end else "")
        streams = [each for each in planned if each.slot == "stream" and not at]
        is_open = poster.latest_record(one).state in ("pending", "attempting")
        if is_open and streams and await poster.finish_stream(streams[0], one, part):
            continue
        is_last = is_end and is_open
        files = await _attached_files(planned, run, poster, deps) if is_last else ()
        await poster.post_or_edit(one, part, files=files)
    for at, table in enumerate(await asyncio.to_thread(_large_tables, text)):
        place = start + TABLE_ORDINAL + at
        await _send_text_file(f"table-{at + 1}.csv", table, place, poster, tells_refusal=True)


async def _plan_parts(
    answer: Delivery, planned: Sequence[Delivery], poster: Poster
) -> tuple[Sequence[Delivery], list[str]]:
    """Returns the deliveries of the reply and the parts of its answer.

    The parts are stored before the first is posted. So if an updated program, which may split differently, has to post
    the rest, it posts the stored parts. Nothing is stored for an answer of one part, or whose whole text is in a
    file."""
    later = sorted((one for one in planned if one.slot == "answer"), key=_place)[1:]
    text, limit = (
        await asyncio.to_thread(normalize_model_markdown, str(answer.body.get("text", ""))),
        poster.surface.answer_limit,
    )
    in_file = answer.ordinal + WHOLE_ANSWER_ORDINAL
    if later and "text" in later[0].body:
        if any((one.slot, one.ordinal) == ("file", in_file) for one in planned):
            await _send_text_file(WHOLE_ANSWER, text, in_file, poster)
        texts = [str(one.body["text"]) for one in later]
        return planned, [str(later[0].body["first"]), *texts]
    if not later and poster.latest_record(answer).state == "delivered":
        return planned, [text]
    parts = await asyncio.to_thread(split_markdown, text, limit) or [text]
    if len(parts) > PARTS_MAX and await _send_text_file(WHOLE_ANSWER, text, in_file, poster):
        parts = [split_markdown(text[: 2 * limit], limit - len(REST_IN_FILE))[0] + REST_IN_FILE]
    drafts = [
        DeliveryDraft(slot="answer", ordinal=answer.ordinal + at, body={"text": part})
        for at, part in enumerate(parts)
        if at
    ]
    if drafts:
        drafts[0].body["first"] = parts[0]
        planned = _of_reply(await poster.plan_deliveries(drafts), answer.ordinal // REPLY_ORDINALS)
    return planned, parts


def _large_tables(markdown: str) -> list[str]:
    """Returns the first tables that are too large to read in a message, as CSV."""
    blocks = [block.lines for block in scan_blocks(markdown) if block.kind == "table"]
    large: list[str] = []
    for header, _, *lines in blocks:
        rows = [[_csv_cell(cell) for cell in split_table_row(line)] for line in (header, *lines)]
        if len(lines) > TABLE_ROWS_SHOWN_MAX or len(rows[0]) > TABLE_COLUMNS_SHOWN_MAX:
            written = io.StringIO()
            written.write("\ufeff")  # without this mark, Excel takes UTF-8 for another encoding
            csv.writer(written).writerows(rows)
            large.append(written.getvalue())
    return large[:TABLE_FILES_MAX]


def _csv_cell(text: str) -> str:
    """Returns the cell's words, changed so that spreadsheets do not run them as a formula."""
    text = text if _MARKS.isdisjoint(text) else markdown_to_words(text)
    is_formula = text.startswith(("=", "+", "-", "@", "\t", "\r")) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


async def _attached_files(
    planned: Sequence[Delivery], run: Run, poster: Poster, deps: DeliveryDeps
) -> list[AttachedFile]:
    """Returns the files to post with the answer: those that fit into its message and are found in time."""
    waiting = [
        one
        for one in planned
        if one.slot == "file"
        and _place(one) < WHOLE_ANSWER_ORDINAL
        and poster.latest_record(one).state in ("pending", "attempting")
    ]
    attached: list[AttachedFile] = []
    room = poster.surface.file_limit(poster.address)
    with suppress(TimeoutError):
        async with asyncio.timeout(FILES_SECONDS if waiting else None):
            for one in waiting[: poster.surface.files_per_message]:
                with suppress(RunError, ToolError):
                    sandbox, path, size = await require_workspace_file(
                        str(one.body.get("path", "")), run.thread_id, deps.sandboxes
                    )
                    if 0 < size <= room:
                        room -= size
                        open_file = partial(_sandbox_file, sandbox, path, size)
                        attached.append(AttachedFile(one, open_file))
    return attached


async def require_workspace_file(
    attachment: str, thread_id: str, sandboxes: SandboxProvider | None
) -> tuple[Sandbox, str, int]:
    """Returns the sandbox, the path and the size of a file that the model attached. Raises RunError or ToolError."""
    path = workspace_path(attachment)
    if sandboxes is None:
        raise RunError("There is no sandbox here.")
    sandbox = await sandboxes.open(thread_id, fence=0)
    entries = await sandbox.files.list(path)
    if not (len(entries) == 1 and entries[0].path == path and entries[0].kind == "file"):
        raise ToolError("It is not a file.")
    return sandbox, path, entries[0].size_bytes


async def _send_text_file(name: str, text: str, ordinal: int, poster: Poster, *, tells_refusal: bool = False) -> bool:
    """Uploads the text as a file. Returns whether the platform accepted it or, with `tells_refusal`, a notice with the
    reason was posted instead."""
    file = await poster.plan_delivery(DeliveryDraft(slot="file", ordinal=ordinal, body={"name": name}))
    refused = await poster.send_file(file, lambda: _text_file(name, text))
    if refused is not None and tells_refusal:
        why = WHY_REFUSED.get(refused.code, NOT_POSTED)
        await _say(file, f"The file `{name}` {why}.", poster)
    elif refused is not None:
        await poster.record_refusal(file, refused)
    return poster.latest_record(file).state == "delivered"


async def _deliver_file(file: Delivery, run: Run, poster: Poster, deps: DeliveryDeps) -> None:
    """Uploads a file from the sandbox. If that fails, posts a notice with the reason, and with a download link if the
    platform does not accept the file and links are available."""
    if poster.latest_record(file).state in ("delivered", "failed"):
        return
    path = str(file.body.get("path", ""))
    try:
        sandbox, path, size = await require_workspace_file(path, run.thread_id, deps.sandboxes)
    except (RunError, ToolError) as error:
        log.warning("a file of run %s cannot be read: %s", run.run_id, type(error).__name__)
        await _say(file, f"The file `{path}` could not be attached: {error}", poster)
        return
    why, limit = TOO_LARGE, poster.surface.file_limit(poster.address)
    if size <= limit:
        refused = await poster.send_file(file, lambda: _sandbox_file(sandbox, path, size))
        if refused is None:
            return
        why = WHY_REFUSED.get(refused.code, NOT_POSTED)
    said = f"The file `{path}` {why}"
    if why == TOO_LARGE:
        most = f", and at most {limit / 1e6:.1f} MB are accepted" if size > limit else ""
        said = f"{said}: it has {size / 1e6:.1f} MB{most}"
    if link := deps.link_for(run.thread_id, path):
        said = f"{said}. It is here: {link}"
    else:
        said = f"{said}. Ask me to split or compress it." if why == TOO_LARGE else f"{said}."
    await _say(file, said, poster)


async def _say(file: Delivery, markdown: str, poster: Poster) -> None:
    """Posts a notice in place of the file."""
    notice = Notice(markdown=markdown, level="warning")
    record = poster.latest_record(file)
    if record.state == "attempting":
        # a refused upload leaves no message in the thread, so there is nothing to search for
        record = replace(record, state="pending", message_ref=None)
    await poster.post_or_edit(record, notice)


async def _deliver_ask(ask: Delivery, poster: Poster, deps: DeliveryDeps) -> None:
    text = str(ask.body.get("text", ""))
    content: Content = Notice(markdown=text)
    ask_id = ask.body.get("ask_id")
    if isinstance(ask_id, str) and (asked := await deps.asks.find_ask(ask_id)) is not None:
        # the stored text of an approval also repeats the file
        is_approval = asked.kind == "approval"
        shown = text if is_approval else await asyncio.to_thread(normalize_model_markdown, asked.text)
        commands = ask.body.get("commands")
        buttons = commands if isinstance(commands, dict) and is_allowed(asked) else {}
        texts = {label: str(command) for label, command in buttons.items()}
        content = AskPrompt(ask=replace(asked, text=shown), commands=texts)
        if _needs_list(asked.choices) and not poster.latest_record(ask).message_ref:
            listed = "".join(f"{at}. {option}\n" for at, option in enumerate(asked.choices, 1))
            await _send_text_file("options.txt", listed, _file_ordinals(ask)[0], poster, tells_refusal=True)
    await _show_whole_approval(ask, poster)
    await poster.post_or_edit(ask, content)


def _file_ordinals(ask: Delivery) -> range:
    """Returns the ordinals of the files of a question."""
    first = QUESTION_ORDINAL + QUESTION_ORDINALS * ask.ordinal
    return range(first, first + QUESTION_ORDINALS)


def _needs_list(options: Sequence[str]) -> bool:
    """Whether a platform may leave out or shorten options.

    A list in Discord has 1,500 characters, of which each number takes 8, and at most 1,000 for one option. In Slack's
    menus, a label has at most 75 characters, and all labels together 12,000."""
    count = max(1, len(options))
    room = max(min(1000, 1500 // count - 8), min(75, 12_000 // count))
    return count > OPTIONS_SHOWN_MAX or max(map(len, options), default=0) > room


async def _show_whole_approval(ask: Delivery, poster: Poster) -> None:
    """Posts the file that an approval's card names, or its text if the platform refuses the file.

    The file comes before the card, so that no one can approve what is not shown."""
    name, text = str(ask.body.get("file_name", "")), str(ask.body.get("file_text", ""))
    first, *places = _file_ordinals(ask)
    if not text or poster.latest_record(ask).message_ref or await _send_text_file(name, text, first, poster):
        return
    planned = await poster.plan_deliveries([])
    if not any(one.slot == "file" and one.ordinal in places for one in planned):
        shown = text.replace("`", "\\u0060")
        parts = split_markdown(f"`{name}`:\n```\n{shown}```", poster.surface.answer_limit)
        bodies = zip(places[: len(parts)], parts, strict=True)  # no part of the approval may be left out
        planned = await poster.plan_deliveries(
            [DeliveryDraft(slot="file", ordinal=at, body={"text": part}) for at, part in bodies]
        )
    for one in planned:
        if one.slot == "file" and one.ordinal in places:
            await poster.post_or_edit(one, Notice(markdown=str(one.body.get("text", ""))))


def _sandbox_file(sandbox: Sandbox, path: str, size: int) -> OutgoingFile:
    name = path.rpartition("/")[2]
    return OutgoingFile(name=name, size_bytes=size, pieces=sandbox.files.read(path, length=size))


def _text_file(name: str, text: str) -> OutgoingFile:
    content = text.encode()

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    return OutgoingFile(name=name, size_bytes=len(content), pieces=pieces())


async def report_refusal_elsewhere(run: Run, planned: Sequence[Delivery], poster: Poster) -> bool:
    """Tells the requester elsewhere that the thread refused the run's messages. Returns whether the thread refused any.

    The message has a Retry button, which posts the kept answer, or starts the run again if it has not begun."""
    refused = poster.refused_posts(planned)
    every = (*planned, *refused)
    results = [one for one in every if one.slot in ("answer", "ask") or "path" in one.body]
    refused = [one for one in refused if not results or one in results]
    if not refused:
        return False
    reasons = poster.surface.closed_reasons
    reason = next((reasons[one.error] for one in refused if one.error and one.error in reasons), "it was refused")
    kept = "The answer is kept: press Retry to post it there." if results else "Press Retry once I may write there."
    view = RunView(
        state="failed",
        message=f"I could not write in the thread where you asked me: {reason}. {kept}",
        can_stop=False,
        can_retry=True,
    )
    await _tell_elsewhere(run, poster, RunStatus(run_id=run.run_id, view=view))
    return True


async def _tell_elsewhere(run: Run, poster: Poster, content: Content) -> None:
    is_person = run.requester is not None and not run.requester.is_app
    person_id = run.requester.person_id if run.requester and is_person else ""
    ordinal = 0
    try:
        async for address in poster.surface.fallback_addresses(poster.address, person_id):
            draft = DeliveryDraft(slot="notice", ordinal=ordinal, body={})
            notice = await poster.plan_delivery(draft)
            elsewhere = replace(poster, address=address)
            await elsewhere.post_or_edit(notice, content)
            if elsewhere.latest_record(notice).state == "delivered":
                return
            ordinal += 1
    except SurfaceRefused as refused:
        log.warning("no place to tell about run %s was found: %s", run.run_id, refused)
    log.error("found no place to say that the messages of run %s were refused", run.run_id)
