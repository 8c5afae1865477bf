"""Files of a run are uploaded once, and recorded with their message."""

from types import SimpleNamespace
from typing import Any

import pytest

from bots.delivery.poster import Poster
from core.domain.errors import SurfaceRefused
from core.domain.threads import Address
from core.stores import Delivery, DeliveryState
from tests.support.narrow import require

HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")


class Chat:
    """A surface and a store. `events` has the calls and the records, in order."""

    def __init__(self, *, has_message: bool, refusal: str) -> None:
        self.has_message, self.refusal = has_message, refusal
        self.events = list[str]()

    async def find(self, _address: Address, _delivery_id: str) -> str | None:
        self.events.append("looks")
        return "7.0" if self.has_message else None

    async def upload(self, _address: Address, _file: object, **_more: object) -> str:
        if self.refusal:
            raise SurfaceRefused("no", code=self.refusal)
        self.events.append("uploads")
        return "8.0"

    async def plan_deliveries(self, _rendering: object, _drafts: object) -> tuple[()]:
        return ()

    async def record(self, _rendering: object, record: Delivery, *, was: DeliveryState | None) -> None:
        self.events.append(f"{record.state} {record.message_ref}")


@pytest.mark.parametrize(
    ("state", "has_message", "refusal", "events"),
    [
        ("pending", False, "", ["attempting None", "uploads", "delivered 8.0"]),
        ("attempting", False, "", ["looks", "attempting None", "uploads", "delivered 8.0"]),
        ("attempting", True, "", ["looks", "attempting 7.0", "delivered 7.0"]),
        ("delivered", False, "", []),
        ("failed", False, "", []),
        ("pending", False, "too_large", ["attempting None"]),
    ],
)
async def test_a_file_is_uploaded_once(state: Any, has_message: bool, refusal: str, events: list[str]) -> None:
    chat: Any = Chat(has_message=has_message, refusal=refusal)
    rendering: Any = SimpleNamespace(run=SimpleNamespace(run_id="r"))
    file = Delivery(delivery_id="d", run_id="r", slot="file", ordinal=0, body={}, state=state)
    refused = await Poster(HERE, chat, rendering, chat).send_file(file, lambda: SimpleNamespace())
    assert chat.events == events
    assert (require(refused).code if refusal else refused) == (refusal or None)
