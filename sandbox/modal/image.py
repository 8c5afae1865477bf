"""The images at Modal: what sandboxes contain, and what the functions that execute runs need.

Functions build the images, because an SDK object belongs to one account once it is loaded.
"""

from pathlib import Path

import modal

from sandbox.local.programs import CHROMIUMS, INSIDE_FOLDER

BASE = "python:3.11-slim-trixie"
NODE = "v24.11.1"
NODE_SHA256 = "60e3b0a8500819514aca603487c254298cd776de0698d3cd08f11dba5b8289a8"
WORKSPACE = "/workspace"
APT = (
    "antiword", "bc", "bzip2", "ca-certificates", "catdoc", "chromium", "curl", "file", "fonts-dejavu",
    "fonts-noto-cjk", "fonts-noto-color-emoji", "gawk", "git", "jq", "less", "pandoc", "poppler-utils",
    "procps", "ripgrep", "rsync", "sudo", "tmux", "tree", "unrtf", "unzip", "vim", "weasyprint",
    "wget", "xmlstarlet", "xz-utils", "zip",
)  # fmt: skip
"""Debian 13 has no wkhtmltopdf any more; weasyprint makes PDFs of pages in its place."""
PIP = ("csvkit==2.1.0", "matplotlib==3.11.2", "numpy==2.4.6", "pandas==3.1.1", "playwright==1.65.2")
"""The same versions as in the local toolbox; a test compares them with its lock file."""
NODE_INSTALLED = (
    f"curl -fsSL -o /tmp/node.tar.xz https://nodejs.org/dist/{NODE}/node-{NODE}-linux-x64.tar.xz"
    f" && echo '{NODE_SHA256}  /tmp/node.tar.xz' | sha256sum -c -"
    " && tar -xJf /tmp/node.tar.xz -C /usr/local --strip-components=1 --exclude='*.md' --exclude=LICENSE"
    " && rm /tmp/node.tar.xz"
)
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
        f"RUN apt-get update && apt-get install -y {' '.join(APT)}",
        f"RUN {NODE_INSTALLED}",
        f"RUN python -m pip install {' '.join(PIP)}",
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
