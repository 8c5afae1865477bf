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
    chart = ElementTree.parse(source).getroot()
    if chart.tag != "{http://www.w3.org/2000/svg}svg":  # a browser shows something for a broken file, too
        raise ValueError(f"{source} is no SVG")
    _, _, width, height = map(float, chart.get("viewBox", "0 0 4 3").replace(",", " ").split())
    size = f"--window-size=800,{round(min(1600, max(50, 800 * height / max(width, 1))))}"
    # as a picture of a page, an SVG runs no scripts and loads nothing
    address = html.escape(pathlib.Path(source).absolute().as_uri())
    style = "width:100vw;height:100vh;object-fit:contain"
    page.write_text(f'<body style="margin:0"><img src="{address}" style="{style}">')
    call = [browsers[0], *flags, f"--user-data-dir={folder}/profile", size, f"--screenshot={drawn}", page.as_uri()]
    subprocess.run(call, timeout=15, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    shutil.copyfile(drawn, target)

targets = {source: f"{source}.png" for source in sys.argv[1:]}
for target in targets.values():
    if not os.path.isdir(target):
        pathlib.Path(target).unlink(missing_ok=True)  # so that no older picture is sent
for source, target in targets.items():
    with tempfile.TemporaryDirectory() as folder:
        try:
            draw(source, target, folder)
        except Exception:
            traceback.print_exc(limit=0)
"""


async def render_svg_files(sandbox: Sandbox, paths: Sequence[str]) -> tuple[str, ...]:
    """Draws the SVG files among the paths as PNG files and returns the paths of these. Skips an SVG file if a PNG file
    of the same name is among the paths, too.

    The sandbox draws `a.svg` as `a.svg.png` anew each time, within its own limits, because an older PNG file may show
    something else. Files that it cannot draw are left out."""
    known = dict.fromkeys(map(workspace_path, paths))
    charts = [path for path in known if path.lower().endswith(".svg")]
    charts = [path for path in charts if known.keys().isdisjoint([f"{path[:-4]}.png", f"{path}.png"])]
    if not charts:
        return ()
    try:
        command = shlex.join(["python3", "-c", _DRAW, *charts])
        done = await sandbox.shell.execute(command, session=SESSION, folder=".", timeout_seconds=DRAW_SECONDS_MAX)
        if done.exit_code != 0 or done.output:
            log.info("not every chart is drawn: %s", done.output[-300:])
    except ToolError as error:
        log.info("no chart is drawn: %s", error)
        return ()
    finally:
        with suppress(ToolError):
            await sandbox.shell.terminate(SESSION)
    drawn = list[str]()
    for target in (f"{path}.png" for path in charts):
        with suppress(ToolError):
            if [(entry.path, entry.kind) for entry in await sandbox.files.list(target)] == [(target, "file")]:
                drawn.append(target)
    return tuple(drawn)
