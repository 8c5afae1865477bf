"""The images at Modal: what sandboxes contain, and what the functions that execute runs need.

Functions build the images, because an SDK object belongs to one account once it is loaded."""

from pathlib import Path

import modal

from sandbox.installed import DEBIAN, NODE, NODE_LINKED, PIP
from sandbox.local.toolbox import CHROMIUMS, INSIDE_FOLDER

BASE = "python:3.11-slim-trixie"
WORKSPACE = "/workspace"
BROWSER_TRIED = (
    "chromium --headless --no-sandbox --disable-gpu --dump-dom 'data:text/html,<p>ready' | grep -q '<p>ready'"
    " && python3 -c 'import playwright.async_api'"
)
"""Makes the build fail if the image has no browser that opens a page."""
COMPILED = "python -m compileall -q --invalidation-mode unchecked-hash /root"
"""Compiles the program while the image is built: a container would do it at each start, for a quarter of its time."""


def sandbox_image() -> modal.Image:
    """Returns the image, not yet built: one layer on its base, because the SDK asks Modal for each layer in turn.
    Playwright finds Debian's Chromium by its path."""
    return modal.Image.from_registry(BASE).dockerfile_commands(  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
        f"RUN apt-get update && apt-get install -y {' '.join(DEBIAN)}",
        f"RUN python -m pip install {' '.join((*PIP, NODE))}",
        f"RUN {NODE_LINKED}",
        f"RUN {BROWSER_TRIED}",
        f"RUN mkdir -p {WORKSPACE}",
        f"WORKDIR {WORKSPACE}",
    )


def worker_image(requirements: Path) -> modal.Image:
    """Returns the image of the functions that execute runs: the product and the packages of its lock file."""
    ignored = ["**/__pycache__/**", "**/*.pyc", "demo/**"]
    return (
        modal.Image.from_registry(BASE)  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
        .pip_install_from_requirements(str(requirements), extra_options="--require-hashes")
        .add_local_python_source("bots", "core", "sandbox", "storage", copy=True, ignore=ignored)
        .run_commands(COMPILED)
    )


BROWSER_PLACES = {
    "pythons": [f"{INSIDE_FOLDER}/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3"],
    "chromiums": [*CHROMIUMS, f"{INSIDE_FOLDER}/browsers/chromium-*/chrome-linux*/chrome", "/usr/bin/chromium"],
}
"""Each sandbox searches these paths itself, because every thread may have changed its own sandbox."""
