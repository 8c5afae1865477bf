"""What the process table tells of files that a process uses without a name."""

import mmap
import os
from pathlib import Path

import pytest

from sandbox.local import process_table
from sandbox.local.process_table import _add_mapped_files, _page_table_bytes

SIZE = 4 << 20


def map_deleted_file(path: Path) -> tuple[tuple[int, int], mmap.mmap]:
    with path.open("w+b") as file:
        file.write(b"x" * SIZE)
        file.flush()
        facts = os.fstat(file.fileno())
        mapped = mmap.mmap(file.fileno(), SIZE // 2, prot=mmap.PROT_READ)
    path.unlink()
    return (facts.st_dev, facts.st_ino), mapped


def test_a_deleted_file_that_is_only_mapped_counts_whole(tmp_path: Path) -> None:
    key, mapped = map_deleted_file(tmp_path / "gone")
    found: dict[tuple[int, int], int] = {}
    assert _add_mapped_files("/proc/self", found, 1 << 30) > 0
    assert found[key] >= SIZE
    mapped.close()
    found.clear()
    _add_mapped_files("/proc/self", found, 1 << 30)
    assert key not in found


def test_without_the_right_to_follow_links_the_mapped_bytes_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, mapped = map_deleted_file(tmp_path / "gone")
    stat = os.stat

    def refusing(path: str) -> os.stat_result:
        if "map_files" in str(path):
            raise PermissionError
        return stat(path)

    monkeypatch.setattr(process_table.os, "stat", refusing)
    found: dict[tuple[int, int], int] = {}
    _add_mapped_files("/proc/self", found, 1 << 30)
    assert found[key] == SIZE // 2
    found = {key: 7}  # counted before through a descriptor
    _add_mapped_files("/proc/self", found, 1 << 30)
    assert found[key] == 7
    mapped.close()


def test_a_file_with_another_name_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "other").hardlink_to(tmp_path / "file")
    key, mapped = map_deleted_file(tmp_path / "file")
    found: dict[tuple[int, int], int] = {}
    _add_mapped_files("/proc/self", found, 1 << 30)
    assert key not in found
    mapped.close()


def test_the_lists_of_mappings_are_read_up_to_a_limit() -> None:
    assert 100 < _add_mapped_files("/proc/self", {}, 100) < 1000


def test_page_tables_count() -> None:
    before = _page_table_bytes("/proc/self")
    mapped = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapped.madvise(15)  # MADV_NOHUGEPAGE
    for place in range(0, 1 << 30, 2 << 20):
        mapped[place]
    assert _page_table_bytes("/proc/self") >= before + 400 * 4096
    mapped.close()
    assert _page_table_bytes("/proc/no") == 0
