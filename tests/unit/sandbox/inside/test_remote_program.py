"""The programs of one sandbox, which find each other in a folder that belongs to the user of the commands."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.inside.remote_program import ProgramRegistry, process_start_time


def put_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


@pytest.mark.parametrize(("change", "is_there"), [(shutil.rmtree, True), (put_file, False), (Path.exists, True)])
def test_a_program_goes_on_whatever_a_command_does_to_the_folder(
    tmp_path: Path, change: Callable[[Path], object], is_there: bool
) -> None:
    folder = tmp_path / "programs"
    registry = ProgramRegistry(str(folder))
    change(folder)
    assert registry.end_older_programs(3) == 3
    record = folder / str(os.getpid())
    expected = f"3 {process_start_time(os.getpid())}" if is_there else None
    assert (record.read_text() if record.exists() else None) == expected
    registry.unregister()
    assert not record.exists()
