"""`modal deploy` of the app, carried out by the real command against the simulated Modal."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from modal_proto import api_pb2

from bots.settings.sandbox import SandboxSettings
from sandbox.installed import DEBIAN, NODE, NODE_LINKED, PIP
from sandbox.modal import image as modal_image
from scripts import live_modal
from tests.paths import REPOSITORY
from tests.support.modal_stage import Stage, environment_of, modal_stage


async def deployed(stage: Stage) -> tuple[dict[str, api_pb2.FunctionCreateRequest], str]:
    """The functions by name, and what the command said."""
    world = stage.modal.world
    world.secrets["threadhand"] = {}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}  # noqa: TID251 - a child's environment
    command = [sys.executable, "-m", "modal", "deploy", "sandbox/modal_app.py"]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=REPOSITORY,
        env={**kept, **environment_of(stage.modal), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    (requests,) = world.deployed.values()
    return {one.function.function_name: one for one in requests}, said.decode()


async def test_the_app_is_deployed_as_planned() -> None:
    async with modal_stage() as stage:
        functions, said = await deployed(stage)
        layers = "\n".join(line for image in stage.modal.world.images.values() for line in image.layers)
        mounted, apps = stage.modal.world.mounted_files, set(stage.modal.world.apps)
    assert "deployed" in said.lower()
    assert set(functions) == {"execute_run", "janitor"}
    # docs/admins/modal.md tells people to stop this app, which must not end the sandboxes
    assert SandboxSettings.model_fields["modal_app"].default not in apps
    janitor, run = functions["janitor"].function, functions["execute_run"].function
    assert janitor.schedule.period.minutes == 5
    assert not run.HasField("schedule")
    assert (run.timeout_secs, janitor.timeout_secs) == (6 * 3600, 900)
    assert janitor.autoscaler_settings.max_containers == 1
    assert run.autoscaler_settings.scaledown_window == 300
    assert (run.startup_timeout_secs, janitor.startup_timeout_secs) == (120, 120)
    assert run.checkpointing_enabled
    assert janitor.checkpointing_enabled  # it is called every five minutes, by when its container has ended
    reserved = [(one.resources.milli_cpu, one.resources.memory_mb) for one in (run, janitor)]
    assert reserved == [(1000, 1024), (250, 512)]
    assert list(run.secret_ids) == list(janitor.secret_ids) == ["st-threadhand"]
    assert f"FROM {modal_image.BASE}" in layers
    assert "--require-hashes" in layers
    copied, compiled = layers.index("COPY . /"), layers.index("-m compileall")
    assert copied < compiled  # a container would compile the program at each start
    assert run.module_name == janitor.module_name
    assert "/root/bots/modal_worker.py" in mounted
    assert not [one for one in mounted if {"demo", "simulator", "tests"} & set(one.split("/"))]


def test_a_function_imports_nothing_that_only_other_programs_need() -> None:
    unneeded = {"slack_bolt", "slack_sdk", "redis", "opentelemetry", "discord", "litellm", "mcp"}
    unneeded |= {"simulator", "tests", "bots.demo", "bots.web.app"}
    script = f"import sys, bots.modal_worker; print({unneeded!r} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("configured", "wanted"),
    [
        ({}, set[str]()),
        ({"THREADHAND_BUDGET_RUN_USD": "no number"}, set[str]()),
        ({"THREADHAND_SLACK_BOT_TOKEN": "xoxb-alone"}, set[str]()),
        (
            {
                "THREADHAND_DATABASE_URL": "postgresql://nobody@localhost/none",
                "THREADHAND_REDIS_URL": "redis://localhost",
                "THREADHAND_SLACK_BOT_TOKEN": "xoxb-of-a-test",
                "THREADHAND_SLACK_APP_TOKEN": "xapp-of-a-test",
            },
            {"asyncpg", "redis.asyncio", "slack_sdk"},
        ),
        ({"THREADHAND_DISCORD_TOKEN": "of-a-test"}, {"discord"}),
    ],
)
def test_clients_that_are_configured_are_imported_before_the_memory_snapshot(
    configured: dict[str, str], wanted: set[str], tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("MODAL_TOKEN_ID=of-another-account\n")
    script = (
        f"import os, sys; sys.path[:0] = [{str(REPOSITORY)!r}];"
        f"import runpy; runpy.run_path({str(REPOSITORY / 'sandbox' / 'modal_app.py')!r});"
        "assert 'MODAL_TOKEN_ID' not in os.environ;"  # `modal deploy` imports it, too
        "print(*{'asyncpg', 'redis.asyncio', 'slack_sdk', 'discord'} & set(sys.modules))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"THREADHAND_DATA_DIR": str(tmp_path), **configured},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(said.stdout.split()) == wanted


@pytest.mark.parametrize("first", ["sandbox", "sandbox/../sandbox", str(REPOSITORY / "sandbox")])
def test_its_folder_shadows_no_package_even_if_it_comes_first(first: str) -> None:
    """`modal deploy` and `python` put the app's folder first, and it has folders named modal, docker and client."""
    names = ("modal", "sandbox", "docker", "client", "archive", "local", "inside")
    script = (
        f"import sys; sys.path[:0] = [{first!r}]; import runpy, importlib.util as util;"
        f"runpy.run_path({str(REPOSITORY / 'sandbox' / 'modal_app.py')!r});"
        f"specs = [util.find_spec(one) for one in {names!r}];"
        "paths = [(one.origin or '', *(one.submodule_search_locations or ())) for one in specs if one];"
        "print(*sum(paths, ()))"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = said.stdout.split()
    assert str(REPOSITORY / "sandbox") in found
    inside = f"{REPOSITORY / 'sandbox'}/"
    own = f"{inside}__init__.py"  # of the package itself
    assert not [path for path in found if path.startswith(inside) and path != own]


async def test_the_image_of_sandboxes_has_what_is_promised() -> None:
    async with modal_stage() as stage:
        await stage.worker().open("thread", fence=1)
        (made,) = stage.modal.world.living()
        layers = "\n".join(stage.modal.world.images[made.definition.image_id].layers)
    for words in (modal_image.BASE, " ".join(DEBIAN), " ".join((*PIP, NODE)), NODE_LINKED, "--dump-dom"):
        assert words in layers
    assert layers.rstrip().endswith("WORKDIR /workspace")


async def test_the_smoke_run_goes_through_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_modal, "CHECKS", (("echo here", "here"),))
    async with modal_stage() as stage:
        async with asyncio.timeout(300):
            await live_modal.run_smoke_test()
        assert stage.living == []
        assert stage.snapshots == []
    told = capsys.readouterr().out
    assert "the first snapshot is gone" in told
    assert "the file came back" in told
    assert "it leads inside" in told
    assert "the address needs its token" in told
