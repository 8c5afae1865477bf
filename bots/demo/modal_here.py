"""A simulated Modal for the demonstration, where no account is set up."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bots.settings import tell_sdks
from core.domain.errors import ConfigurationError
from sandbox.local import programs
from sandbox.local.jail import is_root
from sandbox.local.provider import LocalJails
from sandbox.local.toolbox import find_toolbox
from simulator.modal.container import Jail
from simulator.modal.server import ModalSimulator

USER = 29_999
"""Whom containers run as on this machine where the demo runs as root."""
NO_ACCOUNT = (
    "A real model needs Modal itself: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or leave "
    "THREADHAND_SANDBOX unset."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModalHere:
    """What became of it: what is lacking, and what to tell who watches."""

    has_browser: bool
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def modal_here(stack: AsyncExitStack, folder: Path, *, is_scripted: bool) -> ModalHere:
    """Begins the simulated Modal and leads the SDK to it, unless an account is set up.

    Raises ConfigurationError for a real model without an account.
    """
    if has_account():
        notes = ("Sandboxes run at Modal, in the account that is set up.",)
        return ModalHere(has_browser=True, notes=notes)
    if not is_scripted:
        raise ConfigurationError(NO_ACCOUNT)
    jail, why = await _jail(folder)
    modal = await stack.enter_async_context(ModalSimulator(jail))
    token_id, secret = modal.world.credentials
    tell_sdks(
        {
            "MODAL_SERVER_URL": modal.url,
            "MODAL_TOKEN_ID": token_id,
            "MODAL_TOKEN_SECRET": secret,
            "MODAL_DISABLE_API_PROXY": "1",
        }
    )
    notes = ("There is no Modal account here: sandboxes run in a simulated Modal on this machine.",)
    if jail is None:
        loud = f"THIS MACHINE ALLOWS NO JAIL: the simulated Modal runs plain processes. {why}"
        return ModalHere(has_browser=False, skipped=("jail",), notes=(*notes, loud))
    lacks = (f"The simulated Modal has no browser: {why}",) if why else ()
    return ModalHere(has_browser=not why, notes=(*notes, *lacks))


def has_account() -> bool:
    """Whether the SDK finds a token, in its variables or its own file."""
    from modal.config import config

    return bool(config.get("token_id") and config.get("token_secret"))


async def _jail(folder: Path) -> tuple[Jail | None, str]:
    """The jail for containers, or None and why; or a jail without a browser, and why."""
    jails = LocalJails(folder / "jail")
    tried = await jails.probe()
    await jails.close()
    if not tried.ok:
        return None, f"{tried.reason} {tried.remedy}"
    drops_user = is_root()
    place = folder / "jail" / "programs"
    python = programs.find_python(drops_user=drops_user)
    bwrap = programs.find_bwrap(place, drops_user=drops_user)
    user = USER if drops_user else None
    more: tuple[tuple[Path, str], ...] = ()
    if not jails.browser_lack:
        more = find_toolbox(python, drops_user=drops_user).bound()
    jail = Jail(bwrap=bwrap, python=python.path, prefix=python.prefix, user=user, more=more)
    return jail, jails.browser_lack
