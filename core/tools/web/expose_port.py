"""Giving people a link to a program that listens on a port of the sandbox."""

from pydantic import BaseModel, Field

from core.domain.errors import ToolError
from core.tools.tool import Tool, ToolContext


class ExposeParams(BaseModel):
    """Make a program that listens on a port of the sandbox reachable for people by a link. Start the program first, in
    the background, listening on all addresses (0.0.0.0). The link works as long as the program runs and this
    conversation exists; whoever has it may use it. Plain HTML files need no program: they have preview links."""

    port: int = Field(ge=1, le=65_535, description="The port that the program listens on.")


async def run_expose(params: ExposeParams, context: ToolContext) -> str:
    sandbox = await context.sandbox()
    try:
        stream = await sandbox.connect(params.port)
    except ToolError as error:
        raise ToolError(
            f"{error} Start the program in the background, see with check_command_output that it listens, and call"
            " expose_port again."
        ) from error
    stream.close()
    url = await sandbox.link(params.port) or context.links.port_url(params.port)
    if url is None:
        raise ToolError("Ports cannot be exposed here. Hand over files or screenshots instead.")
    return f"Port {params.port} is reachable at {url} as long as the program runs."


expose_port = Tool(
    name="expose_port",
    params=ExposeParams,
    run=run_expose,
    title=lambda params: f"Making port {params.port} reachable",
    example={"port": 8000},
    is_idempotent=True,
    requires=("sandbox",),
)
