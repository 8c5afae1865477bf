"""The secret of links: shared by processes that have no folder in common, and never a weak one."""

from pathlib import Path

import pytest

from bots.settings import load_settings
from bots.web.errors import ApiError
from bots.web.links import SignedLinks, load_link_secret, verify_file_link, verify_preview_link
from core.domain.errors import ConfigurationError
from tests.chaos.disks import MEBIBYTE, small_disk
from tests.support.narrow import require

SHARED = "0123456789abcdef" * 2


def test_a_link_that_one_machine_makes_opens_at_another(tmp_path: Path) -> None:
    there, here = (load_link_secret(tmp_path / "there", SHARED), load_link_secret(tmp_path / "here", SHARED))
    links = SignedLinks(there, "https://agent.example.org", "")
    link = require(links.file_url("t-1", "report.md"))
    assert verify_file_link(here, link.rpartition("/")[2]) == ("t-1", "report.md")
    assert not list(tmp_path.iterdir()), "a secret that is given is kept nowhere"


def test_without_a_shared_secret_it_does_not(tmp_path: Path) -> None:
    link = require(
        SignedLinks(load_link_secret(tmp_path / "there"), "https://x", "").page_preview_url("t-1", "index.html")
    )
    with pytest.raises(ApiError):
        verify_preview_link(load_link_secret(tmp_path / "here"), link.split("/")[-2])


def test_where_nobody_can_reach_a_server_there_are_no_links() -> None:
    links = SignedLinks(b"s" * 32, "", "")
    assert links.file_url("t-1", "a") is None
    assert links.page_preview_url("t-1", "a") is None
    assert links.takeover_url("t-1") is None


def test_a_short_secret_is_refused_and_not_repeated() -> None:
    short = "short-but-secret"
    with pytest.raises(ConfigurationError, match="THREADHAND_LINK_SECRET") as caught:
        load_settings({"THREADHAND_LINK_SECRET": short}, None)
    assert "openssl rand -hex 32" in str(caught.value)
    assert short not in str(caught.value)


def test_a_full_disk_is_told_in_one_line_and_keeps_no_half_secret() -> None:
    with small_disk(MEBIBYTE) as disk:
        folder = disk.folder / "data"
        folder.mkdir()
        disk.fill()
        with pytest.raises(ConfigurationError, match="No space left on device"):
            load_link_secret(folder)
        assert list(folder.iterdir()) == []
        disk.clear()
        assert load_link_secret(folder) == load_link_secret(folder)
