"""What a thread remembers, and what of it a model is shown."""

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
