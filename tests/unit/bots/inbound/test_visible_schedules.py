"""Which schedules a user is shown where."""

from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.schedules import list_visible_schedules
from core.domain.threads import Address, Person, Selection


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
