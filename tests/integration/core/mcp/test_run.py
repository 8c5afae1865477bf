"""Tools of an MCP server in a whole run: schemas to the model, results, pictures and failures into the thread."""

from collections.abc import Callable

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.events import ToolFinished
from tests.fakes.streamed_model import Played, calls, invokes, text
from tests.integration.core.conftest import World
from tests.support.mcp_servers import MakeGuest, stdio


def native() -> list[Played]:
    echo = ("mcp_fake_echo", '{"text": "007", "times": 2}')
    others = (("mcp_fake_mixed", "{}"), ("mcp_fake_sums", '{"numbers": "none"}'))
    return [calls(echo, *others), calls(("mcp_fake_die", "{}")), text("done")]


def xml() -> list[Played]:
    echo = ("mcp_fake_echo", {"text": "007", "times": "2"})
    others: tuple[tuple[str, dict[str, str]], ...] = (("mcp_fake_mixed", {}), ("mcp_fake_sums", {"numbers": "none"}))
    die: tuple[str, dict[str, str]] = ("mcp_fake_die", {})
    return [text(invokes(echo, *others)), text(invokes(die)), text("done")]


@pytest.mark.parametrize(("dialect", "turns"), [(NativeDialect(), native), (XmlDialect(), xml)], ids=["native", "xml"])
async def test_a_run_uses_them_in_each_dialect(
    world: World, guest_of: MakeGuest, dialect: Dialect, turns: Callable[[], list[Played]]
) -> None:
    guest = await guest_of(stdio(needs_approval=())).ready()
    world.model.turns = list(turns())
    run_id = await world.with_deps(toolbox=guest.toolbox, dialect=dialect).run("go")

    sent = str(world.model.requests[0])
    assert "[Tool of the MCP server fake, described by it:] Says it again." in sent
    finished = [event for event in await world.events(run_id) if isinstance(event, ToolFinished)]
    assert [event.outcome for event in finished] == ["completed", "completed", "error", "failed"]
    told = [str(one.content) for one in await world.messages(run_id) if one.type == "tool"]
    assert "007007" in told[0]
    assert "numbers: should be array" in told[2]
    assert "It may or may not have done what was asked" in told[3]
    assert (await world.read_end(run_id)).status == "completed"


async def test_a_picture_is_stored_before_the_message_of_its_tool(world: World, guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio(needs_approval=())).ready()
    world.model.turns = [calls(("mcp_fake_mixed", "{}")), text("done")]
    run_id = await world.with_deps(toolbox=guest.toolbox).run("go")
    kinds = [one.type for one in await world.messages(run_id) if one.type != "status"]
    assert kinds == ["user", "assistant", "image_context", "tool", "assistant"]
