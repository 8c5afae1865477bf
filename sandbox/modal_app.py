"""Runs Threadhand at Modal without a server: `modal deploy sandbox/modal_app.py`.

The app has a function that executes one run, and a janitor that stops, archives and terminates sandboxes no longer in
use. Both read their settings from the Secret named `threadhand`: the THREADHAND_ variables and the model's key, with a
PostgreSQL database as THREADHAND_DATABASE_URL and THREADHAND_SANDBOX=modal."""

import gc
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
if FOLDER.name == "sandbox":  # `modal deploy` puts it first, where it would shadow packages named like its folders
    sys.path[:] = [str(FOLDER.parent), *(one for one in sys.path if Path(one).resolve() != FOLDER)]

import modal  # noqa: E402 - only with this path

from sandbox.modal.image import worker_image  # noqa: E402 - only with the path set above

SECRET = "threadhand"  # noqa: S105 - its name
RUN_SECONDS_MAX = 6 * 3600
START_SECONDS_MAX = 120
WARM_SECONDS = 300
"""How long a container waits for the next run: a thread's next message often comes within minutes."""
JANITOR_MINUTES = 5
JANITOR_SECONDS_MAX = 900

app = modal.App("threadhand")
image = worker_image(FOLDER.parent / "requirements" / "run.txt")

# before the memory snapshot is taken, so that a container starts with them
gc.disable()  # collections would find nothing to free, and take a seventh of the time
with image.imports():  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
    from bots import modal_worker

    modal_worker.import_configured_clients()
gc.enable()


@app.function(
    image=image,
    secrets=[modal.Secret.from_name(SECRET)],
    cpu=1.0,
    memory=1024,
    timeout=RUN_SECONDS_MAX,
    startup_timeout=START_SECONDS_MAX,
    scaledown_window=WARM_SECONDS,
    enable_memory_snapshot=True,
)
async def execute_run(run_id: str) -> None:
    """Claims the run, executes it to its end and releases it. Does nothing if another worker has claimed it."""
    await modal_worker.execute_run(run_id)


@app.function(
    image=image,
    secrets=[modal.Secret.from_name(SECRET)],
    schedule=modal.Period(minutes=JANITOR_MINUTES),
    cpu=0.25,
    memory=512,
    timeout=JANITOR_SECONDS_MAX,
    startup_timeout=START_SECONDS_MAX,
    max_containers=1,
    enable_memory_snapshot=True,
)
async def janitor() -> None:
    """Stops idle sandboxes, archives old ones and terminates those without a record."""
    await modal_worker.sweep_sandboxes()
