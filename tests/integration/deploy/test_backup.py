"""The commands of docs/operators/operations.md for a backup and its return, as they stand there."""

import asyncio
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from core.failpoints import Failpoint
from storage.sql.database import Database, migrate, open_database
from tests.chaos.program import REPOSITORY
from tests.integration.deploy.composition import programs_of_postgresql
from tests.servers import postgresql
from tests.support.closing import close_after

OPERATIONS = (REPOSITORY / "docs" / "operators" / "operations.md").read_text("utf-8")
CURSORS = "SELECT scope, cursor FROM inbound_cursor ORDER BY scope"
SAID = "INSERT INTO inbound_cursor (platform, scope, cursor) VALUES ('discord', '{}', '1')"
IN_THE_CONTAINER = "docker compose -f deploy/compose.yaml exec -T postgres "
_SAY = Failpoint("test.say")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url_of:
        yield url_of("postgres")


def command(start: str) -> str:
    """The line of the document that starts so."""
    (line,) = re.findall(rf"^{re.escape(start)}.*$", OPERATIONS, re.MULTILINE)
    return line


def run(folder: Path, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{programs_of_postgresql()}:{os.environ['PATH']}"  # noqa: TID251 - tests
    here = line.replace(".venv/bin/python", shlex.quote(sys.executable))
    environment: Mapping[str, str] = {"PATH": path, "LC_ALL": "C", **variables}
    return subprocess.run(
        ["sh", "-c", here], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def done(folder: Path, line: str, **variables: str) -> None:
    finished = run(folder, line, **variables)
    assert finished.returncode == 0, finished
    assert "error" not in finished.stderr.lower(), finished


async def said(database: Database, scope: str) -> None:
    await database.write(_SAY, lambda c: c.exec_driver_sql(SAID.format(scope)).close())


@pytest.mark.parametrize(("inside", "role"), [("", "keeper"), (IN_THE_CONTAINER, "threadhand")], ids=["url", "compose"])
async def test_a_dump_comes_back_into_a_database_that_a_newer_version_has_changed(
    inside: str, role: str, server: str, tmp_path: Path
) -> None:
    url = await owned(server, role, is_superuser=bool(inside))
    host = url.rpartition("host=")[2]

    async def carry_out(*tools: str) -> None:
        for tool in tools:
            line = command(f"{inside}{tool} ").removeprefix(inside)
            await asyncio.to_thread(done, tmp_path, line, THREADHAND_DATABASE_URL=url, PGHOST=host)

    await migrate(url)
    database = await asyncpg.connect(url)
    await database.execute(SAID.format("before"))
    await carry_out("pg_dump")
    for number in range(2):  # what was brought back can be kept and brought back again
        await database.execute(SAID.format(f"after{number}"))
        await database.execute(
            "CREATE TABLE later (run_id text REFERENCES run (run_id)); UPDATE alembic_version SET version_num = 'later'"
        )
        await database.close()
        await carry_out("psql", "pg_restore")
        await migrate(url)
        database = await asyncpg.connect(url)
        assert [tuple(row) for row in await database.fetch(CURSORS)] == [("before", "1")]
        assert await database.fetchval("SELECT to_regclass('later')") is None
        await carry_out("pg_dump")
    await database.close()


async def owned(server: str, role: str, *, is_superuser: bool) -> str:
    """A new database of that name; the image of PostgreSQL makes its user a superuser."""
    admin = await asyncpg.connect(server)
    await admin.execute(f"CREATE ROLE {role} LOGIN {'SUPERUSER' if is_superuser else ''}")
    await admin.execute(f"CREATE DATABASE {role} OWNER {role}")
    await admin.close()
    return server.replace("//postgres@/postgres", f"//{role}@/{role}")


async def test_a_copy_of_the_file_is_made_beside_a_writer_and_comes_back(tmp_path: Path) -> None:
    (folder := tmp_path / "data of the program").mkdir()
    file = folder / "threadhand.db"
    await migrate(f"sqlite:///{file}")
    keep = f"{command('umask')}\n{command('.venv/bin/python -c ')}"
    async with close_after(await open_database(f"sqlite:///{file}")) as writer:
        await said(writer, "before")
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute(SAID.format("under way"))
            await asyncio.to_thread(done, tmp_path, keep, DATA=str(folder))
            other.execute("COMMIT")
        again = await asyncio.to_thread(run, tmp_path, keep, DATA=str(folder))
        assert "already exists" in again.stderr
        assert (tmp_path / "backup.db").stat().st_mode & 0o077 == 0
        await said(writer, "after")
        wal = Path(f"{file}-wal").read_bytes()
    Path(f"{file}-wal").write_bytes(wal)  # as after a crash
    file.unlink()  # as in a new data folder
    (tmp_path / "backup.db").chmod(0o644)  # as an older document made it
    for start in ("rm -f ", "cp backup.db "):
        await asyncio.to_thread(done, tmp_path, command(start), DATA=str(folder))
    database = await open_database(f"sqlite:///{file}")
    rows = await database.read(lambda c: c.exec_driver_sql(CURSORS).fetchall())
    await database.close()
    assert [tuple(row) for row in rows] == [("before", "1")]
    assert file.stat().st_mode & 0o077 == 0


def test_a_copy_of_no_database_is_not_made(tmp_path: Path) -> None:
    finished = run(tmp_path, command(".venv/bin/python -c "), DATA=str(tmp_path))
    assert finished.returncode != 0
    assert list(tmp_path.iterdir()) == []
