"""The command `schedules`: which ones a user is shown where, what changes them, and how a hook is armed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.schedules import (
    HOOK_IS_FOR_ADMINS,
    HOOK_KEY_CHARACTERS_MAX,
    HOW,
    HOW_TO_EDIT,
    HOW_TO_EDIT_HOOK,
    NAME_TAKEN,
    NO_HOOKS,
    NO_SUCH,
    NO_TASK,
    NONE,
    NOT_IN_PUBLIC,
    answer_schedules,
    arm_hook,
    list_visible_schedules,
)
from core.domain.schedules import DEFAULT_LIMITS, TASK_CHARACTERS_MAX, Schedule, Trigger, build_commands
from core.domain.threads import Address, Person, Selection
from core.tools.schedules import describe_schedule, too_many_message
from tests.unit.bots.inbound.test_schedules import ALICE, CHANNEL, DAILY, FIRING

BOB = Person(person_id="U2", name="bob")
HOOK = replace(DAILY, schedule_id="h", timing=Trigger(kind="hook"))
ELSEWHERE = replace(DAILY, schedule_id="e", address=replace(CHANNEL, channel_id="C2"))
OF_DISCORD = replace(CHANNEL, platform="discord", workspace_id="1", channel_id="4")
AMONG_FEW = replace(OF_DISCORD, channel_id="4/5", thread_key="5")
DISCORD_DIRECT = replace(OF_DISCORD, workspace_id="@me", channel_id="9", thread_key="dm")
DRAFT = replace(DAILY, schedule_id="p", state="proposed")
LONG, KEY = "x" * TASK_CHARACTERS_MAX, "k" * HOOK_KEY_CHARACTERS_MAX


class Store:
    """Stored schedules, and what was done with them."""

    def __init__(self, *schedules: Schedule, is_full: bool = False) -> None:
        self.schedules, self.is_full = {one.schedule_id: one for one in schedules}, is_full
        self.done, self.places = list[str](), list[tuple[str, str]]()

    async def list_schedules(self, _selection: Selection) -> list[Schedule]:
        return [*self.schedules.values()]

    async def find(self, schedule_id: str) -> Schedule | None:
        return self.schedules.get(schedule_id)

    async def save(self, schedule: Schedule, _limits: object, *, by: Person, change: str) -> bool:
        if self.is_full or (change == "created" and schedule.schedule_id in self.schedules):
            return False
        self.done.append(
            f"{change} {schedule.schedule_id} by {by.name}: {getattr(schedule.timing, 'pattern', '')}:{schedule.task}"
        )
        self.places.append((schedule.address.channel_id, schedule.address.thread_key))
        return True

    async def pause_schedule(self, schedule_id: str, *, by: Person) -> bool:
        self.done.append(f"pauses {schedule_id} by {by.name}")
        return True

    async def begin_firing(self, *_arguments: object, **_others: object) -> Any:
        self.done.append("begins")
        return FIRING


def called(argument: str, person: Person = ALICE, address: Address = CHANNEL) -> CommandCalled:
    return CommandCalled(address=address, dedupe_key="1", name="schedules", argument=argument, person=person)


def shown(name: str, task: str = "a task") -> Outcome:
    return Outcome(notice=f"{name}: {task}", commands=build_commands(name))


def created(name: str = "n", key: str = "", task: str = "a task") -> str:
    return f"created {name} by alice: {key}:{task}"


@pytest.mark.parametrize(
    ("command", "store", "outcome", "done"),
    [
        (called(""), Store(), Outcome(notice=NONE), ""),
        (called("list"), Store(replace(DAILY, task="y" * 201)),
         Outcome(notice=f"- {describe_schedule(replace(DAILY, task='y' * 199 + '…'))}\n{HOW}"), ""),
        (called("pause X"), Store(DAILY), Outcome(notice=NO_SUCH.format("X")), ""),
        (called("pause S"), Store(DAILY), Outcome(notice="Paused: `s`.", is_private=False), "pauses s by alice"),
        (called("pause e"), Store(ELSEWHERE), Outcome(notice="Paused: `e`.", is_private=False), "pauses e by alice"),
        (called("pause e", BOB), Store(ELSEWHERE), Outcome(notice=NO_SUCH.format("e")), ""),
        (called("pause p"), Store(DRAFT), Outcome(notice="Nobody has armed `p` yet"), ""),
        (called("run s"), Store(DAILY), Outcome(notice="`s` runs now, in its own thread.", is_private=False), "begins"),
        (called("resume h", BOB), Store(HOOK), Outcome(notice=HOOK_IS_FOR_ADMINS), ""),
        (called("resume h"), Store(HOOK),
         Outcome(notice="Resumed: `h`, ", commands=build_commands("h"), is_private=False),
         "resumed h by alice: :Post the news"),
        (called("pause h", BOB), Store(HOOK), Outcome(notice="Paused: `h`.", is_private=False), "pauses h by bob"),
        (called("edit s"), Store(DAILY), Outcome(notice=HOW_TO_EDIT.format("s")), ""),
        (called("edit h", BOB), Store(HOOK), Outcome(notice=HOW_TO_EDIT_HOOK.format("h")), ""),
        (called("hook N a task "), Store(), shown("n"), created()),
        (called(f"hook n {LONG}"), Store(), shown("n", LONG), created(task=LONG)),
        (called(f"hook n {LONG}x"), Store(), Outcome(notice=NO_TASK), ""),
        (called(f"hook n key={KEY} a task"), Store(), shown("n"), created(key=KEY)),
        (called(f"hook n key={KEY}k a task"), Store(), Outcome(notice=NO_TASK), ""),
        (called("hook n key=a"), Store(), Outcome(notice=NO_TASK), ""),
        (called("hook h a task"), Store(HOOK), Outcome(notice=NAME_TAKEN), ""),
        (called("hook n a task"), Store(is_full=True), Outcome(notice=too_many_message(DEFAULT_LIMITS)), ""),
        (called("hook H"), Store(HOOK), shown("h", "Post the news"), ""),
        (called("hook s"), Store(DAILY), Outcome(notice=NO_TASK), ""),
        (called("hook x"), Store(), Outcome(notice=NO_TASK), ""),
        (called("hook e", BOB), Store(replace(ELSEWHERE, timing=HOOK.timing)), Outcome(notice=NO_TASK), ""),
        (called("hook n x", address=replace(CHANNEL, platform="discord")), Store(), Outcome(notice=NOT_IN_PUBLIC), ""),
    ],
)  # fmt: skip
async def test_schedules_are_listed_changed_and_armed(
    command: CommandCalled, store: Store, outcome: Outcome, done: str
) -> None:
    deps: Any = SimpleNamespace(
        store=store, limits=DEFAULT_LIMITS, describe_hook=lambda hook: f"{hook.schedule_id}: {hook.task}"
    )
    answer = await answer_schedules(command, deps, is_admin=command.person == ALICE)
    assert answer == replace(outcome, notice=outcome.notice + answer.notice[len(outcome.notice) :])
    assert store.done == [done] * (done != "")


@pytest.mark.parametrize(
    ("there", "here", "person", "is_there"),
    [
        (OF_DISCORD, OF_DISCORD, BOB, True),
        (AMONG_FEW, AMONG_FEW, BOB, True),
        (AMONG_FEW, OF_DISCORD, BOB, False),
        (AMONG_FEW, replace(OF_DISCORD, channel_id="4/6", thread_key="6"), BOB, False),
        (OF_DISCORD, AMONG_FEW, BOB, False),
        (AMONG_FEW, OF_DISCORD, ALICE, True),
        (AMONG_FEW, DISCORD_DIRECT, ALICE, True),
        (OF_DISCORD, DISCORD_DIRECT, BOB, False),
        (replace(CHANNEL, workspace_id="T2"), CHANNEL, ALICE, False),
        (replace(CHANNEL, platform="discord"), CHANNEL, ALICE, False),
    ],
)
async def test_a_schedule_is_known_to_its_owner_and_where_it_belongs(
    there: Address, here: Address, person: Person, *, is_there: bool
) -> None:
    deps: Any = SimpleNamespace(store=Store(replace(DAILY, address=there)), limits=DEFAULT_LIMITS)
    answer = await answer_schedules(called("pause s", person, here), deps, is_admin=False)
    assert answer.notice == ("Paused: `s`." if is_there else NO_SUCH.format("s"))


@pytest.mark.parametrize(
    ("here", "place"),
    [
        (replace(OF_DISCORD, thread_key="7"), ("4", "")),
        (AMONG_FEW, ("4/5", "5")),
        (DISCORD_DIRECT, ("9", "dm")),
        (replace(CHANNEL, channel_id="D1", thread_key="7.0"), ("D1", "")),
    ],
)
async def test_a_hook_begins_its_tasks_where_it_was_armed(here: Address, place: tuple[str, str]) -> None:
    store = Store()
    await arm_hook("n", "a task", here, ALICE, cast(Any, store), DEFAULT_LIMITS)
    assert store.places == [place]


async def test_without_a_server_there_are_no_hooks() -> None:
    deps: Any = SimpleNamespace(store=Store(HOOK), limits=DEFAULT_LIMITS, describe_hook=None)
    assert await answer_schedules(called("hook h"), deps, is_admin=True) == Outcome(notice=NO_HOOKS)


@pytest.mark.parametrize("is_direct", [True, False])
async def test_a_channel_shows_its_schedules_and_a_direct_message_those_of_the_user(*, is_direct: bool) -> None:
    place = Address(platform="slack", workspace_id="T1", channel_id="D1" if is_direct else "C1", thread_key="1.0")
    person, asked = Person(person_id="U1", name="alice"), list[Selection]()

    async def list_schedules(selection: Selection) -> list[Any]:
        asked.append(selection)
        return []

    called = CommandCalled(address=place, dedupe_key="1", name="schedules", argument="", person=person)
    deps: Any = SimpleNamespace(store=SimpleNamespace(list_schedules=list_schedules))
    await list_visible_schedules(called, deps)
    assert asked == [Selection.of_person("U1", place) if is_direct else Selection.of_channel(place)]
