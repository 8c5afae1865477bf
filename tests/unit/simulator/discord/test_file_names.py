"""The names that Discord gives to files."""

import pytest

from simulator.discord.world import clean_filename


@pytest.mark.parametrize(
    ("name", "clean", "title"),
    [
        ("data.csv", "data.csv", None),
        ("my data.csv", "my_data.csv", "my data"),
        ("../../etc/x", "x", None),
        ("..\\..\\boot.ini", "boot.ini", None),
        ("bad\n\x00name.txt", "badname.txt", "badname"),
        ("\u202efdp.exe", "fdp.exe", "fdp"),
        ("данные.csv", "unknown.csv", "данные"),
        (".hidden", "hidden", ".hidden"),
        ("", "unknown", None),
    ],
)
def test_file_names_are_cleaned(name: str, clean: str, title: str | None) -> None:
    assert clean_filename(name) == (clean, title)
