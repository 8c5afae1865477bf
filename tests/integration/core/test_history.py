"""What a thread remembers, and what of it a model is shown."""

import json

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from tests.fakes.streamed_model import calls, invokes, text
from tests.integration.core.conftest import World


async def test_a_later_run_knows_what_was_said_before(world: World) -> None:
    world.model.turns = [text("The code is 4711."), text("4711.")]
    first = await world.run("make a code")
    second = await world.run("which code was it?")
    assert [message["role"] for message in world.model.requests[1].messages] == ["system", "user", "assistant", "user"]
    assert "4711" in str(world.model.requests[1].messages[2]["content"])
    messages = await world.messages(second)
    assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))
    assert {message.run_id for message in messages} == {first, second}


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect()], ids=["native", "xml"])
async def test_a_status_is_stored_with_the_thread_and_never_sent_to_a_model(world: World, dialect: Dialect) -> None:
    one_call = calls(("echo", '{"text": "a"}'))
    if dialect.name == "xml":
        one_call = text(invokes(("echo", {"text": "a"})))
    world.with_deps(dialect=dialect).model.turns = [one_call, text("one"), text("two")]
    run_id = await world.run("go")
    await world.run("and again")
    stored = await world.messages(run_id)
    statuses = [message for message in stored if message.type == "status"]
    kinds = {str(message.content["status_type"]) for message in statuses}
    assert {"thread_run_start", "tool_started", "tool_completed", "finish"} <= kinds
    assert not any(message.is_llm_message for message in statuses)
    assert len(world.model.requests) == 3
    sent = json.dumps([request.messages for request in world.model.requests])
    assert "status_type" not in sent
    assert not any(kind in sent for kind in kinds)
    assert all(
        message["role"] in ("system", "user", "assistant", "tool")
        for request in world.model.requests
        for message in request.messages
    )


async def test_a_thread_may_change_its_dialect(world: World) -> None:
    world.model.turns = [calls(("echo", '{"text": "a"}')), text("one")]
    await world.run("go")
    xml = XmlDialect()
    world.with_deps(dialect=xml).model.turns = [text(invokes(("echo", {"text": "b"}))), text("two")]
    await world.run("go on")
    assert world.bench.said == ["a", "b"]
    assert world.model.requests[0].tools
    assert world.model.requests[2].tools == ()
    assert "<function_calls>" in str(world.model.requests[2].messages[0]["content"])
