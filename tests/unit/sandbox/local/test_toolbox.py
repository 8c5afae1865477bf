"""Finding the toolbox and its browser, and the addresses that the browser may open."""

import os
import sys
from pathlib import Path

import pytest

from sandbox.inside.browser.action_arguments import is_outside_workspace, resolve_address
from sandbox.inside.browser.chromium import reserve_path
from sandbox.inside.browser.protocol import ActionRefused
from sandbox.local import toolbox
from sandbox.local.jail_requirements import MissingRequirement, PythonInstallation

PYTHON = PythonInstallation(path=Path(sys.executable).resolve(), prefix=None)


def made(folder: Path, python: Path = PYTHON.path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python3").symlink_to(python)
    (folder / "pyvenv.cfg").write_text("")
    return folder


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("")
    path.chmod(0o755)
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the toolbox belongs, on a machine without any browser."""
    monkeypatch.setattr(toolbox, "REPOSITORY", tmp_path)
    monkeypatch.setattr(toolbox, "CHROMIUMS", ())
    return tmp_path / ".toolbox"


def test_the_toolboxs_own_browser_is_found(place: Path) -> None:
    program(made(place) / "browsers" / "chromium-1" / "chrome-linux" / "chrome")
    found = toolbox.require_toolbox(PYTHON, drops_user=False)
    assert found.folder == place
    assert found.chromium == "/opt/toolbox/browsers/chromium-1/chrome-linux/chrome"
    assert found.browser_settings()["python"] == "/opt/toolbox/bin/python3"
    before = found.version
    os.utime(place / "pyvenv.cfg", (1, 1))
    assert toolbox.require_toolbox(PYTHON, drops_user=False).version != before


def test_a_browser_elsewhere_is_bound_with_its_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(place)
    chrome = program(tmp_path / "google" / "chrome")
    monkeypatch.setattr(toolbox, "CHROMIUMS", ("/nowhere/chromium", str(chrome)))
    found = toolbox.require_toolbox(PYTHON, drops_user=False)
    assert (found.chromium, found.more_folders) == (str(chrome), (chrome.parent,))


def test_what_lacks_is_told(place: Path) -> None:
    with pytest.raises(MissingRequirement, match="The toolbox of the sandbox is not installed"):
        toolbox.require_toolbox(PYTHON, drops_user=False)
    made(place)
    with pytest.raises(MissingRequirement, match="There is no Chromium for the sandbox"):
        toolbox.require_toolbox(PYTHON, drops_user=False)
    other = PythonInstallation(path=Path("/bin/sh"), prefix=None)
    with pytest.raises(MissingRequirement, match="The toolbox is made for"):
        toolbox.require_toolbox(other, drops_user=False)


def test_a_private_folder_is_no_place_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setattr(toolbox, "REPOSITORY", private)
    assert toolbox.toolbox_folder(drops_user=False) == private / ".toolbox"
    assert toolbox.toolbox_folder(drops_user=True) == toolbox.SHARED_FOLDER


@pytest.mark.parametrize(
    ("written", "opened"),
    [
        (" example.org/a b ", "https://example.org/a b"),
        ("example.org:8443/x", "https://example.org:8443/x"),
        ("localhost:8000/x", "http://localhost:8000/x"),
        ("127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("HTTP://example.org", "HTTP://example.org"),
        ("about:blank", "about:blank"),
    ],
)
def test_addresses_are_completed(tmp_path: Path, written: str, opened: str) -> None:
    assert resolve_address(written, str(tmp_path)) == opened


def test_pages_of_the_workspace_go_by_either_name(tmp_path: Path) -> None:
    (tmp_path / "a b.html").write_text("")
    url = f"file://{tmp_path}/a%20b.html"
    for written in ("/workspace/a b.html", "file:///workspace/a%20b.html", url):
        assert resolve_address(written, str(tmp_path)) == url
    assert not is_outside_workspace(url, str(tmp_path))
    assert is_outside_workspace("file:///etc/passwd", str(tmp_path))
    assert is_outside_workspace(f"file://{tmp_path}/../x", str(tmp_path))
    assert is_outside_workspace(f"file://{tmp_path}x/y", str(tmp_path))
    assert not is_outside_workspace("https://example.org/etc/passwd", str(tmp_path))


@pytest.mark.parametrize("written", ["", " ", "ftp://x", "javascript:x", "/etc", "a" * 9000])
def test_other_addresses_are_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(ActionRefused):
        resolve_address(written, str(tmp_path))


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "etcpasswd"),
        ("a\n\x00b.txt", "ab.txt"),
        (".bashrc", "bashrc"),
        ("", "download"),
    ],
)
def test_names_of_downloads_are_made_safe(tmp_path: Path, wanted: str, name: str) -> None:
    assert reserve_path(str(tmp_path), wanted) == f"{tmp_path}/{name}"


def test_a_download_replaces_no_file_nor_one_that_has_only_begun(tmp_path: Path) -> None:
    (tmp_path / "a-2.txt").symlink_to("nowhere")
    for expected in ("a.txt", "a-3.txt", "a-4.txt"):
        assert reserve_path(str(tmp_path), "a.txt") == f"{tmp_path}/{expected}"
    (tmp_path / "plain").touch()
    assert reserve_path(str(tmp_path), "plain") == f"{tmp_path}/plain-2"
