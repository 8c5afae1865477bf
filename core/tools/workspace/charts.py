"""Draws SVG files as PNG, because chats do not show an SVG."""

import logging
import shlex
from collections.abc import Sequence
from contextlib import suppress

from core.domain.errors import ToolError
from core.ports import Sandbox
from core.tools.workspace.paths import workspace_path

log = logging.getLogger(__name__)

SESSION = "draw charts"
DRAW_SECONDS_MAX = 30.0
_DRAW = r"""
import glob, html, os, pathlib, shutil, subprocess, sys, tempfile, traceback
from xml.etree import ElementTree

places = ("/usr/lib*/chromium*/chromium*", "/opt/toolbox/browsers/chromium-*/chrome-linux*/chrome", "/usr/bin/chromium")
browsers = [one for place in places for one in glob.glob(place) if os.path.isfile(one) and os.access(one, os.X_OK)]
flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
flags += ["--force-device-scale-factor=2"]

def draw(source, target, folder):
    page, drawn = pathlib.Path(folder, "page.html"), f"{folder}/drawn.png"
    chart = ElementTree.parse(source).getroot()  # a browser shows something for a broken file, too
    _, _, width, height = map(float, chart.get("viewBox", "0 0 4 3").replace(",", " ").split())
    size = f"--window-size=800,{round(min(1600, max(50, 800 * height / max(width, 1))))}"
    # as a picture of a page, an SVG runs no scripts and loads nothing
    address = html.escape(pathlib.Path(source).absolute().as_uri())
    style = "width:100vw;height:100vh;object-fit:contain"
    page.write_text(f'<body style="margin:0"><img src="{address}" style="{style}">')
    call = [browsers[0], *flags, f"--user-data-dir={folder}/profile", size, f"--screenshot={drawn}", page.as_uri()]
    subprocess.run(call, timeout=15, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    shutil.copyfile(drawn, target)

for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    with tempfile.TemporaryDirectory() as folder:
        try:
            draw(source, target, folder)
        except Exception:
            traceback.print_exc(limit=0)
"""


async def draw_charts(sandbox: Sandbox, paths: Sequence[str]) -> tuple[str, ...]:
    """Returns the paths of PNG files that show the SVG files among the paths and are not among the paths themselves.

    The sandbox draws those that do not exist, with its own limits. What it cannot draw is left out.
    """
    known = [workspace_path(path) for path in paths]
    charts = {path: f"{path[:-4]}.png" for path in known if path.lower().endswith(".svg")}
    charts = {path: drawn for path, drawn in charts.items() if drawn not in known}
    missing = [path for path, drawn in charts.items() if not await _exists(sandbox, drawn)]
    if missing:
        names = shlex.join(["python3", "-c", _DRAW, *(name for path in missing for name in (path, charts[path]))])
        try:
            done = await sandbox.shell.execute(names, session=SESSION, folder=".", timeout_seconds=DRAW_SECONDS_MAX)
            if done.exit_code != 0 or done.output:
                log.info("not every chart is drawn: %s", done.output[-300:])
        except ToolError as error:
            log.info("no chart is drawn: %s", error)
        finally:
            with suppress(ToolError):
                await sandbox.shell.terminate(SESSION)
    return tuple([drawn for path, drawn in charts.items() if path not in missing or await _exists(sandbox, drawn)])


async def _exists(sandbox: Sandbox, path: str) -> bool:
    try:
        return [(entry.path, entry.kind) for entry in await sandbox.files.list(path)] == [(path, "file")]
    except ToolError:
        return False
