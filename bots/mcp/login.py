"""`threadhand mcp-login`: gets a person's consent for an MCP server over HTTP, and keeps the tokens for runs."""

import asyncio
from urllib.parse import urlsplit

from aiohttp import web

from bots.bootstrap.mcp import load_mcp_server_configs
from bots.settings import Settings, process_environment
from core.domain.errors import ConfigurationError
from core.mcp.connection import check_server

CONSENT_SECONDS = 600.0


async def log_in(settings: Settings, name: str) -> str:
    """Prints a link, waits for the consent, and returns a sentence about the tools. Raises ConfigurationError."""
    known = {config.name: config for config in load_mcp_server_configs(settings)}
    config = known.get(name)
    oauth = config.oauth if config is not None else None
    if config is None or oauth is None or oauth.grant != "authorization_code":
        raise ConfigurationError(
            f"{name} is no MCP server with `oauth` and the grant authorization_code in {settings.mcp_config}."
        )
    # a longer timeout, because a person must consent first
    patient = config.model_copy(update={"connect_timeout_seconds": CONSENT_SECONDS})
    arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def receive(request: web.Request) -> web.Response:
        if not arrived.done():
            arrived.set_result(str(request.url))
        return web.Response(text="Threadhand has received the answer. You can close this page.")

    async def authorize(link: str) -> str:
        print(  # noqa: T201 - the command's output
            f"Open this link and agree:\n\n{link}\n\nIf the browser runs on another machine, forward the port first: "
            f"ssh -L {place.port}:127.0.0.1:{place.port} HOST",
            flush=True,
        )
        return await arrived

    place = urlsplit(oauth.redirect_uri)
    app = web.Application()
    app.router.add_get(place.path or "/", receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", place.port).start()
        seen = await check_server(patient, process_environment(), authorize)
    except OSError as error:
        raise ConfigurationError(f"Port {place.port} of redirect_uri cannot be used: {error.strerror}.") from error
    finally:
        await runner.cleanup()
    if seen.problem:
        raise ConfigurationError(f"{patient.name}: {seen.problem}.")
    return f"{patient.name} is authorized and offers {len(seen.tools)} tools. Runs use it from now on."
