"""Finding the sandboxes at Modal that nobody remembers: their thread is gone, or their maker died at once."""

import modal

from sandbox.modal.account import ModalAccount
from sandbox.modal.plan import BORN_TAG, HOME_TAG, legal
from sandbox.modal.snapshots import ModalVault

YOUNG_SECONDS = 1800.0
"""One so young may be just about to be remembered."""


async def unremembered(
    account: ModalAccount, vault: ModalVault, home: str, now: float
) -> list[modal.Sandbox]:
    """Those of this home alone: others may share the app. Raises the SDK's errors, StorageUnavailable."""
    if not home:
        return []
    app, client = await account.app(), await account.client()
    listed = modal.Sandbox.list.aio(app_id=app.app_id, tags={HOME_TAG: legal(home)}, client=client)
    living = [sandbox async for sandbox in listed]
    in_use = await vault.in_use()
    found: list[modal.Sandbox] = []
    for sandbox in living:
        if sandbox.object_id not in in_use:
            tags = await sandbox.get_tags.aio()
            if now - float(tags.get(BORN_TAG) or 0) >= YOUNG_SECONDS:
                found.append(sandbox)
    return found
