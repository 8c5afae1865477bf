"""The jail's toolbox, the image at Modal and the image of the program are made from one list."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.installed import DEBIAN, NODE, NODE_LINKED, PACKAGES, PIP, PROGRAMS
from sandbox.local import jail_requirements, toolbox
from sandbox.modal import image
from tests.paths import REPOSITORY

DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text("utf-8")


@pytest.mark.parametrize("name", ["ffmpeg", "git", "jq", "pandoc", "pdftotext", "soffice", "tesseract", *PACKAGES])
def test_what_reports_need_is_installed_everywhere(name: str) -> None:
    assert PROGRAMS.get(name) in DEBIAN or PACKAGES.get(name) in PIP


def test_debian_13_has_all_packages() -> None:
    assert "wkhtmltopdf" not in DEBIAN  # removed from Debian 13: the build would fail


def test_the_lock_file_of_the_toolbox_has_the_packages() -> None:
    locked = (REPOSITORY / "requirements" / "toolbox.txt").read_text("utf-8")
    assert [pinned for pinned in PIP if f"\n{pinned} \\\n" not in locked] == []
    distributions = {pinned.partition("==")[0] for pinned in PIP}
    assert distributions >= {"numpy", "pillow", "requests"}


def test_the_image_of_the_program_installs_the_list(tmp_path: Path) -> None:
    copied = re.findall(r"^COPY (.+) /opt/installed/\nWORKDIR /opt/installed$", DOCKERFILE, flags=re.MULTILINE)
    for name in copied[0].split():
        shutil.copy(REPOSITORY / name, tmp_path)
    commands = re.findall(r"\$\(python3 (-c) '([^']+)'\)", DOCKERFILE)
    printed = [
        subprocess.run([sys.executable, *one], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for one in commands
    ]
    assert printed == [f"{' '.join(DEBIAN)}\n", f"{NODE_LINKED}\n"]
    assert "pip install --no-cache-dir --require-hashes --only-binary :all: -r toolbox.txt -r node.txt\n" in DOCKERFILE
    assert f"\n{NODE} \\\n" in (tmp_path / "node.txt").read_text("utf-8")
    assert (tmp_path / "toolbox.txt").exists()


def test_the_image_of_the_program_has_the_toolbox_where_jails_look() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, flags=re.MULTILINE)
    assert bases == [image.BASE, image.BASE, "sandbox"]
    packages = Path("/opt/threadhand/lib/python3.11/site-packages")
    place = packages / toolbox.toolbox_folder(drops_user=False).relative_to(toolbox.REPOSITORY)
    assert f" -m venv --without-pip --system-site-packages {place}\n" in DOCKERFILE


def test_a_jail_has_the_python_that_its_commands_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages of the toolbox are made for that one: a Debian package may bring another Python."""
    (tmp_path / "python3").symlink_to("/usr/bin/python3")
    monkeypatch.setattr(jail_requirements, "SYSTEM_PATH", f"{tmp_path}:/usr/bin")
    assert jail_requirements.require_python(drops_user=False).path == tmp_path / "python3"
