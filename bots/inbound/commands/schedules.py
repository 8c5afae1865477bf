"""The chat command `schedules`, and the creation of hooks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.admin import is_answer_public
from bots.inbound.hook_calls import new_hook_secret
from core.domain.errors import ToolError
from core.domain.outside_text import escape_markdown, single_line
from core.domain.schedules import TASK_CHARACTERS_MAX, Schedule, ScheduleAction, ScheduleLimits, Trigger, build_commands
from core.domain.threads import Address, Person, Selection
from core.stores import Schedules
from core.tools.schedules import change_schedule_by, describe_schedule, is_hook, is_visible, too_many_message

HOW = "`schedules run ID`, `pause ID`, `resume ID` and `delete ID` change one; tell me in your own words to edit one."
NONE = "Nothing is scheduled here. Ask me, for example: “every Monday at 9, post last week's incidents here”."
TASK_CHARACTERS_SHOWN = 200
HOOK_KEY_CHARACTERS_MAX = 200
HOW_TO_EDIT = "Tell me here in your own words what to change about `{}`, for example “make it Tuesday at 10”."
HOW_TO_EDIT_HOOK = "To change what the hook does, an admin deletes it and makes it again: `schedules hook {} TEXT`."
NO_SUCH = "There is no schedule `{}` here. `schedules` lists them."


HOOK_IS_FOR_ADMINS = "Only admins of this bot can change a hook. Everyone can pause it."
NAME_TAKEN = "There is a schedule or hook of that name already. Take another name."
NO_TASK = "Say after the name what I am to do when the hook is called."
NO_HOOKS = "No hooks can be called here: the HTTP server of this bot does not run."
NOT_IN_PUBLIC = "Everyone here would see the secret. Ask me with `/agent schedules`, or in a direct message."


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDeps:
    """Dependencies of the command.

    `describe_hook` returns how a program calls a hook. It is None if this server serves no hooks."""

    store: Schedules
    limits: ScheduleLimits
    describe_hook: Callable[[Schedule], str] | None = None


async def list_visible_schedules(called: CommandCalled, deps: ScheduleDeps) -> Sequence[Schedule]:
    """Returns the schedules of the channel or, in a direct message, all schedules of the person."""
    place = called.address
    theirs = Selection.of_person(called.person.person_id, place)
    return await deps.store.list_schedules(theirs if place.is_direct else Selection.of_channel(place))


def _shown(words: str) -> str:
    return escape_markdown(single_line(words, TASK_CHARACTERS_SHOWN))


async def arm_hook(
    name: str, task: str, place: Address, owner: Person, store: Schedules, limits: ScheduleLimits
) -> Schedule | str:
    """Arms a hook in the channel, or in the thread if the channel has no others. Returns the hook, or a sentence that
    explains why it was not armed.

    The task may begin with `key=FIELD`. FIELD is the field of the request body whose value identifies the thread to
    post in."""
    first, _, rest = task.strip().partition(" ")
    key, task = (first.removeprefix("key="), rest) if first.startswith("key=") else ("", task)
    if not task.strip() or len(task) > TASK_CHARACTERS_MAX or len(key) > HOOK_KEY_CHARACTERS_MAX:
        return NO_TASK
    hook = Schedule(
        schedule_id=name,
        address=place.place_for_tasks,
        owner=owner,
        task=task.strip(),
        timing=Trigger(kind="hook", pattern=key, secret=new_hook_secret()),
        armed_at=datetime.now(UTC),
    )
    if await store.save(hook, limits, by=owner, change="created"):
        return hook
    return NAME_TAKEN if await store.find(name) else too_many_message(limits)


async def _answer_hook(called: CommandCalled, name: str, task: str, deps: ScheduleDeps) -> Outcome:
    """Arms a hook. Without a task, describes again how to call an existing hook."""
    if deps.describe_hook is None:
        return Outcome(notice=NO_HOOKS)
    if is_answer_public(called):
        return Outcome(notice=NOT_IN_PUBLIC)
    if task:
        hook = await arm_hook(name, task, called.address, called.person, deps.store, deps.limits)
    else:
        found = await deps.store.find(name)
        is_here = found is not None and is_hook(found) and is_visible(found, called.address, called.person)
        hook = found if found and is_here else NO_TASK
    if isinstance(hook, str):
        return Outcome(notice=hook)
    return Outcome(notice=deps.describe_hook(hook), commands=build_commands(hook.schedule_id))


async def answer_schedules(called: CommandCalled, deps: ScheduleDeps, *, is_admin: bool) -> Outcome:
    """Answers `schedules`. Changes take effect immediately, because a person's own command needs no approval."""
    action, _, schedule_id = called.argument.partition(" ")
    if action == "hook":
        name, _, task = schedule_id.partition(" ")
        return await _answer_hook(called, name.lower(), task, deps)
    if action in ("", "list"):
        lines = [f"- {describe_schedule(one, _shown)}" for one in await list_visible_schedules(called, deps)]
        return Outcome(notice="\n".join([*lines, HOW]) if lines else NONE)
    found = await deps.store.find(schedule_id.lower())
    if found is None or not is_visible(found, called.address, called.person):
        return Outcome(notice=NO_SUCH.format(schedule_id))
    if action == "edit":
        return Outcome(notice=(HOW_TO_EDIT_HOOK if is_hook(found) else HOW_TO_EDIT).format(found.schedule_id))
    if is_hook(found) and action != "pause" and not is_admin:
        return Outcome(notice=HOOK_IS_FOR_ADMINS)
    wanted = cast(ScheduleAction, "run_now" if action == "run" else action)
    try:
        notice = await change_schedule_by(called.person, found, wanted, deps.store, deps.limits)
    except ToolError as error:
        return Outcome(notice=str(error))
    is_armed = wanted == "resume"
    return Outcome(notice=notice, commands=build_commands(found.schedule_id) if is_armed else {}, is_private=False)
