"""Addresses that Modal gives to ports of a sandbox. A token in them lets whoever has it in: by HTTP and by websocket.

The first answer to such an address sets the token as a cookie, so that a page's own requests pass too
(https://modal.com/docs/guide/sandbox-networking).
"""

import asyncio
import logging

from yarl import URL

from core.failpoints import Failpoint
from sandbox.machines import Machine
from sandbox.modal.errors import SDK_ERRORS, told
from sandbox.modal.machine import ModalMachine

LINK = Failpoint("modal.link")
LINK_SECONDS = 20.0
QUERY = "_modal_connect_token"

log = logging.getLogger(__name__)


async def modal_link(machine: Machine, port: int) -> str | None:
    """None where Modal gives none; the reason is logged."""
    if not isinstance(machine, ModalMachine):
        return None
    try:
        async with asyncio.timeout(LINK_SECONDS):
            with LINK:
                given = await machine.sandbox.create_connect_token.aio(port=port)
    except SDK_ERRORS as error:
        log.warning(
            "Modal gives no address to port %d of a sandbox: %s (%s)", port, told(error)[1], error
        )
        return None
    return str(URL(given.url).with_query({QUERY: given.token}))
