"""The doctor at what executes: sandboxes, and functions at Modal."""

import asyncio
import secrets
import shutil
from pathlib import Path

from bots.bootstrap.messaging import require_fit
from bots.bootstrap.sandboxes import containers, modal_plan
from bots.settings import Settings
from bots.setup.findings import Finding
from core.domain.errors import ConfigurationError
from sandbox.local.probe import ProbeResult

HOW_TO_DEPLOY = "See docs/operators/modal.md."


async def sandbox_finding(settings: Settings) -> Finding:
    """Tries what the settings name; nothing of it is left."""
    match settings.sandbox:
        case "local":
            return await _jail(settings.data_dir)
        case "docker":
            result = await containers(settings).probe()
            return _told(result, f"docker: containers of {settings.docker_image} work.")
        case "none":
            return Finding("note", "sandbox", "is off: no shell and no files.")
        case "unsafe-process":
            return Finding("note", "sandbox", "is a plain process: commands can do what you can.")
        case "modal":
            return await _modal(settings)


async def _jail(data_dir: Path) -> Finding:
    """Tries a jail with all its flags, in a folder that is gone afterwards."""
    from sandbox.local.provider import LocalJails

    folder = data_dir / f".doctor-{secrets.token_hex(4)}"
    jails = LocalJails(folder)
    try:
        folder.mkdir(mode=0o711, parents=True)
        result = await jails.probe()
    except OSError as error:
        remedy = "Set THREADHAND_DATA_DIR to a folder of yours."
        return Finding("fail", "sandbox", f"cannot be tried: {error.strerror}.", remedy)
    finally:
        await jails.close()
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    lack = f" There is no browser in them: {jails.browser_lack}" if jails.browser_lack else ""
    return _told(result, f"local: jails work.{lack}")


async def _modal(settings: Settings) -> Finding:
    """Asks Modal whether the token opens the app; makes neither image nor sandbox."""
    from sandbox.modal.provider import ModalSandboxes
    from sandbox.records import MemorySandboxRecords

    sandboxes = ModalSandboxes(modal_plan(settings), MemorySandboxRecords())
    try:
        result = await sandboxes.probe()
    finally:
        await sandboxes.close()
    return _told(result, f"modal: the token opens the app {settings.modal_app}.")


def _told(result: ProbeResult, good: str) -> Finding:
    if result.ok:
        return Finding("ok", "sandbox", good)
    return Finding("fail", "sandbox", result.reason, result.remedy)


async def function_findings(settings: Settings) -> tuple[Finding, ...]:
    """Whether the runs can be handed over to functions, where the settings want that."""
    if not settings.modal_worker_app:
        return ()
    try:
        require_fit(settings, with_worker=False)
        await _look_up(settings.modal_worker_app)
    except ConfigurationError as error:
        return (Finding("fail", "functions", str(error), HOW_TO_DEPLOY),)
    fact = f"the app {settings.modal_worker_app} at Modal takes runs."
    return (Finding("ok", "functions", fact),)


async def _look_up(app: str) -> None:
    """Raises ConfigurationError also for a Modal that does not answer."""
    # only where it is set: its import costs a second
    from bots.bootstrap.modal_queue import deployed
    from sandbox.modal.account import ModalAccount
    from sandbox.modal.errors import SDK_ERRORS, told

    account = ModalAccount(app)
    try:
        await deployed(account)
    except SDK_ERRORS as error:
        raise ConfigurationError(f"{told(error)[1]}.") from error
    finally:
        await account.close()
