"""`threadhand hooks`: what the operator reads about hooks."""

import re
from pathlib import Path

from bots.setup.hooks import add_hook
from storage.sql.database import opened_database
from storage.sql.stores.schedules import SqlSchedules
from tests.databases import empty_sqlite_file
from tests.support.settings import settings


async def test_the_secret_of_a_hook_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "threadhand.db").write_bytes(empty_sqlite_file())
    chosen = settings(DATA_DIR=str(tmp_path), PUBLIC_URL="https://bot.example.com")
    described = await add_hook(chosen, "incidents", "slack/T1/C1", "U1", "Look")
    (secret,) = re.findall(r"Secret: (\S+)", described)
    async with opened_database(chosen.storage_url) as database:
        hook = await SqlSchedules(database).find("incidents")
    assert hook is not None
    assert hook.timing.rule == f"ON:HOOK {secret}"
    assert secret not in repr(hook)
    assert not (tmp_path / "link.secret").exists()  # deleting it revokes links and nothing else
