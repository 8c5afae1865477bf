"""What is released, as somebody installs it: the wheel and the source distribution, outside the repository."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from sandbox.installed import PACKAGES, PROGRAMS, SCRIPT, find_names
from tests.integration.deploy.container_engine import find_engine
from tests.paths import REPOSITORY

SECONDS_MAX = 280
IMAGE_SECONDS_MAX = 1800
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions."""
    folder = tmp_path_factory.mktemp("released")
    run(REPOSITORY, sys.executable, "-m", "hatchling", "build", "-d", folder)
    return folder


def run(folder: Path, *command: object, seconds_max: float = SECONDS_MAX, **environment: str) -> str:
    """Runs the command in a folder with none of this process's settings, and returns its output."""
    ended = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=seconds_max,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(released: Path) -> None:
    (wheel,) = released.glob("*.whl")
    packages = ("bots", "core", "sandbox", "simulator", "storage")
    tracked = run(REPOSITORY, "git", "ls-files", *packages).splitlines()
    inside = {name for name in names(wheel) if ".dist-info/" not in name}
    assert inside == set(tracked)


def test_the_source_distribution_makes_the_same_wheel(released: Path, tmp_path: Path) -> None:
    (wheel,), (source,) = released.glob("*.whl"), released.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    run(unpacked, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again")
    assert names(next((tmp_path / "again").glob("*.whl"))) == names(wheel)


def test_the_demo_plays_from_the_installed_wheel(released: Path, tmp_path: Path) -> None:
    (wheel,) = released.glob("*.whl")
    home, python = tmp_path / "home", tmp_path / "venv" / "bin" / "python"
    home.mkdir()
    venv.EnvBuilder(symlinks=True).create(tmp_path / "venv")
    (packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    # the dependencies of this environment, without the program that it has installed for development
    shutil.copytree(
        sysconfig.get_path("purelib"), packages, ignore=shutil.ignore_patterns("*threadhand*"), dirs_exist_ok=True
    )
    run(home, sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    where = run(home, python, "-c", "import core; print(core.__file__)", HOME=str(home))
    assert where.startswith(str(packages))
    last = run(home, python.with_name("threadhand"), "demo", "--headless", HOME=str(home)).splitlines()[-1]
    assert last.startswith('{"ok": true')
    assert PROJECT["version"] in run(home, python.with_name("threadhand"), "--version", HOME=str(home))


@pytest.mark.timeout(IMAGE_SECONDS_MAX)
def test_the_image_is_built_and_plays_the_demo(tmp_path: Path) -> None:
    engine, image = find_engine(tmp_path), "threadhand-release-test"
    run(REPOSITORY, engine, "build", "-f", "deploy/Dockerfile", "-t", image, ".", seconds_max=IMAGE_SECONDS_MAX - 300)
    try:
        said = run(tmp_path, engine, "run", "--rm", image, "demo", "--headless")
        assert said.splitlines()[-1].startswith('{"ok": true')
        found = run(tmp_path, engine, "run", "--rm", "--entrypoint", "/usr/local/bin/python3", image, "-c", SCRIPT)
        assert find_names(found) == {*PROGRAMS, *PACKAGES}
        assert run(tmp_path, engine, "run", "--rm", "--entrypoint", "npm", image, "--version")
    finally:
        run(tmp_path, engine, "rmi", "-f", image)


def test_the_changelog_is_that_of_the_version() -> None:
    (newest, *_) = re.findall(r"^## (\S+)", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == PROJECT["version"]
