"""The image of Modal sandboxes: the programs that the agent may count on.

Made by functions: an SDK object, once loaded, belongs to one account for the life of the process.
"""

from pathlib import Path

import modal

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
"""The versions of the local toolbox; a test compares them with its lock file."""
NODE_INSTALLED = (
    f"curl -fsSL https://nodejs.org/dist/{NODE}/node-{NODE}-linux-x64.tar.xz"
    " | tar -xJ -C /usr/local --strip-components=1 --exclude='*.md' --exclude=LICENSE"
)
BROWSER_TRIED = "chromium --version && python3 -c 'import playwright.async_api'"
"""There is no image without a browser."""
PROBED = (
    "antiword", "bc", "catdoc", "chromium", "csvcut", "curl", "file", "gawk", "git", "jq", "node", "npm",
    "pandoc", "pdftotext", "rg", "rsync", "sudo", "tmux", "tree", "unrtf", "vim", "wget", "wkhtmltopdf",
    "xmlstarlet", "zip",
)  # fmt: skip
"""What a probe looks for before the prompt may name it."""
MODULES = ("matplotlib", "numpy", "pandas", "playwright")


def sandbox_image() -> modal.Image:
    """Not yet built. Chromium is Debian's, found by Playwright through its path."""
    return (
        modal.Image.from_registry(BASE)  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
        .apt_install(*APT)
        .run_commands(NODE_INSTALLED)
        .pip_install(*PIP)
        .run_commands(BROWSER_TRIED, f"mkdir -p {WORKSPACE}")
        .workdir(WORKSPACE)
    )


def worker_image(requirements: Path) -> modal.Image:
    """Of the functions that execute runs: the program, and the packages of its lock file."""
    ignored = ["**/__pycache__/**", "**/*.pyc"]
    return (
        modal.Image.from_registry(BASE)  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
        .pip_install_from_requirements(str(requirements), extra_options="--require-hashes")
        .add_local_python_source("bots", "core", "sandbox", "storage", ignore=ignored)
    )
