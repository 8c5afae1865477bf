"""The chat command `schedules`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from bots.inbound.actions import CommandCalled, Outcome
from core.domain.errors import ToolError
from core.domain.outside_text import escape_markdown, single_line
from core.domain.schedules import Schedule, ScheduleAction, ScheduleLimits
from core.domain.threads import Selection
from core.stores import Schedules
from core.tools.schedules import change_schedule_by, describe_schedule, is_visible

HOW = "`schedules run ID`, `pause ID`, `resume ID` and `delete ID` change one; tell me in your own words to edit one."
NONE = "Nothing is scheduled here. Ask me, for example: “every Monday at 9, post last week's incidents here”."
TASK_CHARACTERS_SHOWN = 200
NO_SUCH = "There is no schedule `{}` here. `schedules` lists them."


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDeps:
    store: Schedules
    limits: ScheduleLimits


async def list_visible(called: CommandCalled, deps: ScheduleDeps) -> Sequence[Schedule]:
    """Returns the schedules of the channel; in a direct message, all that are the person's own."""
    place = called.address
    theirs = Selection.of_person(called.person.person_id, place)
    return await deps.store.listed(theirs if place.is_direct else Selection.of_channel(place))


def _shown(words: str) -> str:
    return escape_markdown(single_line(words, TASK_CHARACTERS_SHOWN))


async def answer_schedules(called: CommandCalled, deps: ScheduleDeps) -> Outcome:
    """Answers `schedules`. What a person types is carried out at once: nobody else has to agree to it."""
    action, _, schedule_id = called.argument.partition(" ")
    if action in ("", "list"):
        lines = [f"- {describe_schedule(one, _shown)}" for one in await list_visible(called, deps)]
        return Outcome(notice="\n".join([*lines, HOW]) if lines else NONE)
    found = await deps.store.find(schedule_id.lower())
    if found is None or not is_visible(found, called.address, called.person):
        return Outcome(notice=NO_SUCH.format(schedule_id))
    wanted = cast(ScheduleAction, "run_now" if action == "run" else action)
    try:
        return Outcome(
            notice=await change_schedule_by(called.person, found, wanted, deps.store, deps.limits), is_private=False
        )
    except ToolError as error:
        return Outcome(notice=str(error))
