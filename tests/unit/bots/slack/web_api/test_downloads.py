"""What files are called: whose they are, and that nobody but us has said so."""

from dataclasses import replace

import pytest

from bots.slack.web_api.downloads import FileRefSigner
from core.domain.threads import IncomingFile
from tests.support.narrow import require

FILE = IncomingFile(file_ref="F1 https://files.slack.com/a", name="a", mime_type="", size_bytes=1)


def test_a_name_says_whose_the_file_is() -> None:
    names = FileRefSigner(["new", "old"])
    found = require(names.verify(names.sign("T1", FILE)))
    assert (found.team_id, found.is_sealed, found.file) == ("T1", True, FILE)


def test_a_name_under_an_old_key_holds_until_the_key_is_gone() -> None:
    named = FileRefSigner(["old"]).sign("T1", FILE)
    found = require(FileRefSigner(["new", "old"]).verify(named))
    assert found.is_sealed
    assert FileRefSigner(["new"]).verify(named) is None


def test_a_name_of_before_is_read_and_not_sealed() -> None:
    found = require(FileRefSigner(["key"]).verify(replace(FILE, file_ref=f"T1/{FILE.file_ref}")))
    assert (found.team_id, found.is_sealed, found.file) == ("T1", False, FILE)


@pytest.mark.parametrize("ref", ["", "F1", "E1/F1", "t1/F1", f"T1.{'0' * 64}/F1", "T1.é/F1"])
def test_other_names_are_none(ref: str) -> None:
    assert FileRefSigner(["key"]).verify(replace(FILE, file_ref=ref)) is None


def test_a_seal_is_good_for_its_own_workspace_and_file() -> None:
    names = FileRefSigner(["key"])
    named = names.sign("T1", FILE)
    for ref in (named.file_ref.replace("T1", "T2", 1), named.file_ref + "b"):
        assert names.verify(replace(FILE, file_ref=ref)) is None
