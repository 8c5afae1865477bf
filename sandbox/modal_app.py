"""Runs Threadhand at Modal without a server: `modal deploy sandbox/modal_app.py`.

The app has a function that executes one run, and a janitor that stops, archives and terminates sandboxes no longer in
use. Both read their settings from the Secret named `threadhand`: the THREADHAND_ variables and the model's key, with a
PostgreSQL database as THREADHAND_DATABASE_URL and THREADHAND_SANDBOX=modal.
"""

from pathlib import Path

import modal

from sandbox.modal.image import worker_image

SECRET = "threadhand"  # noqa: S105 - its name
RUN_SECONDS_MAX = 6 * 3600
JANITOR_MINUTES = 5
JANITOR_SECONDS_MAX = 900

app = modal.App("threadhand")
image = worker_image(Path(__file__).parent.parent / "requirements" / "run.txt")


@app.function(
    image=image,
    secrets=[modal.Secret.from_name(SECRET)],
    cpu=1.0,
    memory=1024,
    timeout=RUN_SECONDS_MAX,
)
async def execute_run(run_id: str) -> None:
    """Claims the run, executes it to its end and releases it. Does nothing if another worker has claimed it."""
    from bots.modal_worker import execute_run as execute

    await execute(run_id)


@app.function(
    image=image,
    secrets=[modal.Secret.from_name(SECRET)],
    schedule=modal.Period(minutes=JANITOR_MINUTES),
    timeout=JANITOR_SECONDS_MAX,
    max_containers=1,
)
async def janitor() -> None:
    """Stops idle sandboxes, archives old ones and terminates those without a record."""
    from bots.modal_worker import sweep_sandboxes

    await sweep_sandboxes()
