"""What the menus of commands suggest: of a conversation that there is, and of nothing else."""

from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.suggestions import FindValues, find_file_values, find_knowledge_values, find_matching_values
from core.domain.threads import Address, Person
from core.ports import FileEntry

HERE = Address(platform="discord", workspace_id="G1", channel_id="C1", thread_key="1")


class Conversation:
    """One conversation, or none: its knowledge and the folder of its workspace that was typed."""

    def __init__(self, *, is_there: bool) -> None:
        self.conversations = SimpleNamespace(find=self.find)
        self.knowledge = SimpleNamespace(knowledge_base=SimpleNamespace(store=SimpleNamespace(entries=self.entries)))
        self.sandboxes = SimpleNamespace(open=self.open)
        self._is_there = is_there

    async def find(self, address: Address) -> Any:
        assert address == HERE
        return SimpleNamespace(thread=SimpleNamespace(thread_id="t")) if self._is_there else None

    async def entries(self, _scopes: object) -> list[Any]:
        return [SimpleNamespace(name="prices.pdf")]

    async def open(self, _thread_id: str, *, fence: int) -> Any:
        return SimpleNamespace(files=SimpleNamespace(list=self.list))

    async def list(self, folder: str) -> list[FileEntry]:
        place = "" if folder == "." else f"{folder}/"
        return [
            FileEntry(path=f"{place}{name}", kind=kind, size_bytes=1, modified_at=0.0)
            for name, kind in ((".cache", "folder"), ("a.csv", "file"), ("images", "folder"))
        ]


@pytest.mark.parametrize(
    ("find", "typed", "is_there", "values"),
    [
        (find_knowledge_values, "", True, ["prices.pdf"]),
        (find_knowledge_values, "", False, []),
        (find_file_values, "", True, ["a.csv", "images/"]),
        (find_file_values, "out/", True, ["out/a.csv", "out/images/", "out/.cache/"]),
        (find_file_values, "IMA", True, ["images/"]),
        (find_file_values, "", False, []),
    ],
)
async def test_names_are_suggested_that_contain_what_was_typed(
    find: FindValues, typed: str, is_there: bool, values: list[str]
) -> None:
    person = Person(person_id="U1", name="alice")
    called = CommandCalled(address=HERE, dedupe_key="1", name="files", argument=typed, person=person)
    suggested = await find_matching_values(find, called, Conversation(is_there=is_there))
    assert sorted(value for value, _ in suggested) == sorted(values)
