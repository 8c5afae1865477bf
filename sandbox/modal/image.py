"""The images at Modal, and which programs, Python packages and browser a sandbox really has.

Functions build the images, because an SDK object belongs to one account once it is loaded.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import modal

from sandbox.inside.browser import find_browser
from sandbox.local.programs import CHROMIUMS, INSIDE_FOLDER

BASE = "python:3.11-slim-bookworm"
NODE = "v20.19.5"
WORKSPACE = "/workspace"
APT = (
    "antiword", "bc", "bzip2", "ca-certificates", "catdoc", "chromium", "curl", "file", "fonts-dejavu",
    "fonts-noto-cjk", "fonts-noto-color-emoji", "gawk", "git", "jq", "less", "pandoc", "poppler-utils",
    "procps", "ripgrep", "rsync", "sudo", "tmux", "tree", "unrtf", "unzip", "vim", "wget",
    "wkhtmltopdf", "xmlstarlet", "xz-utils", "zip",
)  # fmt: skip
PIP = ("csvkit==2.1.0", "matplotlib==3.11.2", "numpy==2.4.6", "pandas==3.1.1", "playwright==1.65.2")
"""The same versions as in the local toolbox; a test compares them with its lock file."""
NODE_INSTALLED = (
    f"curl -fsSL https://nodejs.org/dist/{NODE}/node-{NODE}-linux-x64.tar.xz"
    " | tar -xJ -C /usr/local --strip-components=1 --exclude='*.md' --exclude=LICENSE"
)
BROWSER_TRIED = "chromium --version && python3 -c 'import playwright.async_api'"
"""Makes the build fail if the image has no browser."""
PROBED = (
    "antiword", "bc", "catdoc", "chromium", "csvcut", "curl", "file", "gawk", "git", "jq", "node", "npm",
    "pandoc", "pdftotext", "rg", "rsync", "sudo", "tmux", "tree", "unrtf", "vim", "wget", "wkhtmltopdf",
    "xmlstarlet", "zip",
)  # fmt: skip
"""Programs that are looked up before the prompt may name them."""
MODULES = ("matplotlib", "numpy", "pandas", "playwright")


def sandbox_image() -> modal.Image:
    """Returns the image, not yet built. Playwright finds Debian's Chromium by its path."""
    return (
        modal.Image.from_registry(BASE)  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
        .apt_install(*APT)
        .run_commands(NODE_INSTALLED)
        .pip_install(*PIP)
        .run_commands(BROWSER_TRIED, f"mkdir -p {WORKSPACE}")
        .workdir(WORKSPACE)
    )


def worker_image(requirements: Path) -> modal.Image:
    """Returns the image of the functions that execute runs: the product and the packages of its lock file."""
    ignored = ["**/__pycache__/**", "**/*.pyc"]
    return (
        modal.Image.from_registry(BASE)  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
        .pip_install_from_requirements(str(requirements), extra_options="--require-hashes")
        .add_local_python_source("bots", "core", "sandbox", "storage", ignore=ignored)
    )


PROBE_SECONDS = 30
ANSWER_BYTES_MAX = 64 * 1024
BROWSER_PLACES = {
    "pythons": [f"{INSIDE_FOLDER}/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3"],
    "chromiums": [
        *CHROMIUMS,
        f"{INSIDE_FOLDER}/browsers/chromium-*/chrome-linux*/chrome",
        "/usr/bin/chromium",
    ],
}
"""Each sandbox searches these paths itself, because every thread may have changed its own sandbox."""
SCRIPT = """\
for name in {programs}; do command -v "$name" >/dev/null && echo "program $name"; done
python3 -c '
import importlib.util
for name in "{modules}".split():
    if importlib.util.find_spec(name): print("module", name)
'
python3 -c "$1" "$2"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledTools:
    """Contains only known names, in their order. `has_browser` is None until a sandbox has been searched."""

    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    has_browser: bool | None = None


async def find_installed_tools(sandbox: modal.Sandbox) -> InstalledTools:
    """Searches a sandbox. Raises the SDK's errors, TimeoutError."""
    script = SCRIPT.format(programs=" ".join(PROBED), modules=" ".join(MODULES))
    async with asyncio.timeout(PROBE_SECONDS):
        process = await sandbox.exec.aio(
            *("sh", "-c", script, "sh", _looking_for_a_browser(), json.dumps(BROWSER_PLACES)),
            timeout=PROBE_SECONDS,
            text=False,
            bufsize=-1,
        )
        answer = b""
        async for piece in cast("AsyncIterator[bytes]", process.stdout):
            answer += piece[: ANSWER_BYTES_MAX - len(answer)]
        lines = {tuple(line.split()) for line in answer.decode(errors="replace").splitlines()}
    return InstalledTools(
        programs=tuple(name for name in PROBED if ("program", name) in lines),
        modules=tuple(name for name in MODULES if ("module", name) in lines),
        has_browser=("browser",) in lines,
    )


def _looking_for_a_browser() -> str:
    return Path(find_browser.__file__).read_text("utf-8")
