"""Workers of one machine, which see by the locks of their files who of them lives."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.domain.errors import ConfigurationError, StorageUnavailable
from core.run.worker_liveness import is_from_this_host, new_worker_id, register_worker


@dataclass
class RecordedClaims:
    """Records which workers were removed. With `is_away`, the database cannot be reached."""

    removed: list[str] = field(default_factory=list[str])
    is_away: bool = False

    async def remove_worker(self, worker_id: str) -> None:
        if self.is_away:
            raise StorageUnavailable("away")
        self.removed.append(worker_id)


def test_no_two_workers_have_one_name_and_those_of_a_machine_are_alike() -> None:
    first, second = new_worker_id(), new_worker_id()
    assert first != second
    assert first.rpartition("-")[0] == second.rpartition("-")[0]
    assert f"-{os.getpid()}-" in first
    assert re.fullmatch(r"[\w.-]+", first)
    assert is_from_this_host(first)
    assert not is_from_this_host(f"x{first}")
    assert not is_from_this_host(first.rpartition("-")[0])


async def test_two_workers_of_one_process_do_not_bury_each_other(tmp_path: Path) -> None:
    first, second, claims = new_worker_id(), new_worker_id(), RecordedClaims()
    folder = tmp_path / "not" / "there yet"
    async with register_worker(folder, first, claims), register_worker(folder, second, claims):
        assert claims.removed == []
        assert {file.name for file in folder.iterdir()} == {first, second}
    assert claims.removed == [second, first]


async def test_workers_of_other_machines_and_boots_are_not_judged(tmp_path: Path) -> None:
    (tmp_path / "elsewhere-0a1b2c3d-17-abcdef").touch()
    claims = RecordedClaims()
    async with register_worker(tmp_path, new_worker_id(), claims):
        assert claims.removed == []
    assert [file.name for file in tmp_path.iterdir()] == ["elsewhere-0a1b2c3d-17-abcdef"]


async def test_the_dead_stay_on_the_list_until_they_are_buried(tmp_path: Path) -> None:
    dead = new_worker_id()
    (tmp_path / dead).touch()
    with pytest.raises(ConfigurationError, match="The database cannot be used: away"):
        async with register_worker(tmp_path, new_worker_id(), RecordedClaims(is_away=True)):
            raise AssertionError("it must not start")
    claims = RecordedClaims()
    async with register_worker(tmp_path, new_worker_id(), claims):
        assert claims.removed == [dead]


async def test_an_end_that_cannot_be_put_on_record_is_an_end_all_the_same(tmp_path: Path) -> None:
    claims = RecordedClaims()
    async with register_worker(tmp_path, new_worker_id(), claims):
        claims.is_away = True
    assert list(tmp_path.iterdir()) == []


async def test_without_a_folder_to_lock_in_the_worker_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    me, claims = new_worker_id(), RecordedClaims()
    async with register_worker(tmp_path / "file", me, claims):
        assert claims.removed == []
    assert claims.removed == [me]
