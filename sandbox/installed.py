"""The programs and Python packages in sandboxes that a model is told of, where they are installed."""

from collections.abc import Collection

PROGRAMS = (
    "antiword", "catdoc", "csvcut", "git", "jq", "node", "pandoc", "pdftotext", "rg", "unrtf", "weasyprint",
    "xmlstarlet",
)  # fmt: skip
"""Models do not expect these everywhere. Every image that the program builds itself has all of them."""
PACKAGES = ("matplotlib", "numpy", "pandas", "playwright")
"""Most packages of the toolbox. The names of the imports are those of the packages."""
SCRIPT = f"""
import importlib.util, shutil, sys
found = [name for name in {PROGRAMS} if shutil.which(name)]
found += [name for name in {PACKAGES} if importlib.util.find_spec(name)]
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
