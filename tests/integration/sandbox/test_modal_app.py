"""`modal deploy` of the app, carried out by the real command against the simulated Modal."""

import asyncio
import os
import sys

import pytest
from modal_proto import api_pb2

from sandbox.modal import image as modal_image
from tests.integration.sandbox.modal_stage import Stage, environment_of, modal_stage
from tests.paths import REPOSITORY


async def deployed(stage: Stage) -> tuple[dict[str, api_pb2.FunctionCreateRequest], str]:
    """The functions by name, and what the command said."""
    world = stage.modal.world
    world.secrets["threadhand"] = {}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}  # noqa: TID251 - a child's environment
    command = [sys.executable, "-m", "modal", "deploy", "sandbox/modal_app.py"]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=REPOSITORY,
        env={
            **kept,
            **environment_of(stage.modal),
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    (requests,) = world.deployed.values()
    return {one.function.function_name: one for one in requests}, said.decode()


@pytest.mark.slow
async def test_the_app_is_deployed_as_planned() -> None:
    async with modal_stage() as stage:
        functions, said = await deployed(stage)
        layers = "\n".join(
            line for image in stage.modal.world.images.values() for line in image.layers
        )
    assert "deployed" in said.lower()
    assert set(functions) == {"execute_run", "janitor"}
    janitor, run = functions["janitor"].function, functions["execute_run"].function
    assert janitor.schedule.period.minutes == 5
    assert not run.HasField("schedule")
    assert (run.timeout_secs, janitor.timeout_secs) == (6 * 3600, 900)
    assert janitor.autoscaler_settings.max_containers == 1
    assert list(run.secret_ids) == list(janitor.secret_ids) == ["st-threadhand"]
    assert f"FROM {modal_image.BASE}" in layers
    assert "--require-hashes" in layers
    assert run.module_name == janitor.module_name


async def test_the_image_of_sandboxes_has_what_is_promised() -> None:
    promised = {
        "antiword", "bc", "catdoc", "chromium", "curl", "file", "fonts-noto-cjk",
        "fonts-noto-color-emoji", "gawk", "git", "jq", "pandoc", "poppler-utils", "ripgrep", "rsync",
        "sudo", "tmux", "tree", "unrtf", "vim", "wget", "wkhtmltopdf", "xmlstarlet", "zip",
    }  # fmt: skip
    assert promised <= set(modal_image.APT)
    async with modal_stage() as stage:
        await stage.worker().open("thread", fence=1)
        (made,) = stage.modal.world.living()
        layers = "\n".join(stage.modal.world.images[made.definition.image_id].layers)
    for word in (
        *promised,
        "python:3.11",
        "node-v20.",
        "csvkit",
        "matplotlib",
        "pandas",
        "playwright",
    ):
        assert word in layers, word
    assert layers.rstrip().endswith("WORKDIR /workspace")


def test_the_packages_are_those_of_the_toolbox() -> None:
    locked = (REPOSITORY / "requirements" / "toolbox.txt").read_text()
    own = {"csvkit"}
    for pinned in modal_image.PIP:
        name, _, version = pinned.partition("==")
        assert name in own or f"{name}=={version} " in locked, pinned
