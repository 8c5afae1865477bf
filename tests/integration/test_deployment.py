"""What is deployed is there: settings, files, commands and figures that the deployment and its documents name."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.core import TyperGroup

from bots.__main__ import app
from bots.observability.metrics import Metrics
from bots.settings import VARIABLE_NAMES, load_settings
from core.domain.threads import Usage
from core.observability import Step
from tests.paths import FIXTURES, REPOSITORY
from tests.requirements_of_the_machine import lacking
from tests.support.narrow import require_type

DEPLOY = REPOSITORY / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
EXAMPLE = (DEPLOY / "env.example").read_text("utf-8")
OURS = ("migrate", "bot", "worker")
OPERATIONS = (REPOSITORY / "docs" / "operators" / "operations.md").read_text("utf-8")


def example() -> dict[str, str]:
    lines = [line for line in EXAMPLE.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def instructions(name: str) -> list[str]:
    whole = DOCKERFILE.replace("\\\n", " ")
    return [line.split(maxsplit=1)[1] for line in whole.splitlines() if line.startswith(f"{name} ")]


def commands() -> set[str]:
    group = require_type(typer.main.get_command(app), TyperGroup)
    return set(group.commands)


def test_every_setting_of_the_deployment_is_one() -> None:
    named = set(re.findall(r"THREADHAND_[A-Z_]+", f"{DOCKERFILE} {COMPOSE} {EXAMPLE}"))
    assert len(named) > 10
    assert named <= set(VARIABLE_NAMES)


def test_containers_with_jails_have_limits() -> None:
    for name in OURS:
        service = COMPOSE["services"][name]
        assert {"mem_limit", "pids_limit", "ulimits"} <= set(service), name


def test_what_is_filled_in_by_the_example_is_accepted(tmp_path: Path) -> None:
    filled = {
        name: value or ("x" * 64 if name.endswith(("TOKEN", "SECRET")) else "")
        for name, value in example().items()
        if not name.startswith(("THREADHAND_SLACK", "THREADHAND_PUBLIC"))
    }
    environ = COMPOSE["x-threadhand"]["environment"]
    settings = load_settings({**filled, **environ, "THREADHAND_DATA_DIR": str(tmp_path)}, None)
    assert settings.slack_mode == "off"
    assert (settings.http_port, settings.worker_http_port) == (8700, 8701)
    assert settings.storage_url.startswith(("postgresql://threadhand:", "postgresql+asyncpg://threadhand:"))


def test_secrets_come_from_the_file_that_is_not_kept() -> None:
    secrets = [name for name in example() if re.search(r"TOKEN|SECRET|PASSWORD|KEY", name)]
    assert len(secrets) == 7
    assert all(example()[name] == "" for name in secrets)
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    assert re.findall(r"PASSWORD[^\n]*", text.replace("${POSTGRES_PASSWORD:?", "")) == [
        "PASSWORD: set it in deploy/.env}"
    ]
    assert "/deploy/.env" in (REPOSITORY / ".gitignore").read_text("utf-8").splitlines()
    assert (REPOSITORY / ".dockerignore").read_text("utf-8").startswith("*\n")


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_command_that_is_there(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["command"][0] in commands()
    done = subprocess.run(
        [sys.executable, "-m", "bots", *service["command"], "--help"], capture_output=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0
    assert service["env_file"] == ".env"


def test_what_services_lean_on_is_there_and_watched() -> None:
    services = COMPOSE["services"]
    assert set(services) == {*OURS, "postgres", "redis"}
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            assert other in services
            if condition["condition"] == "service_healthy":
                assert "test" in services[other]["healthcheck"]
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
        assert service["healthcheck"], name


@pytest.mark.parametrize(("name", "port"), [("bot", "8700"), ("worker", "8701")])
def test_a_health_check_asks_the_port_that_is_served(name: str, port: str) -> None:
    service = COMPOSE["services"][name]
    asked = service["healthcheck"]["test"][-1]
    assert f"http://127.0.0.1:{port}/readyz" in asked
    setting = "THREADHAND_HTTP_PORT" if name == "bot" else "THREADHAND_WORKER_HTTP_PORT"
    assert service["environment"][setting] == port
    compile(asked, "healthcheck", "exec")


def test_a_program_has_longer_to_end_than_it_takes() -> None:
    drain_seconds = load_settings({}, None).drain_seconds
    for name in ("bot", "worker"):
        grace_seconds = int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s"))
        assert grace_seconds >= drain_seconds + 20
        # the kernel hides signals from a first process that has not yet asked for them
        assert COMPOSE["services"][name]["init"] is True


def test_every_file_that_is_copied_into_the_image_is_there() -> None:
    kept = re.findall(r"^!(.+)$", (REPOSITORY / ".dockerignore").read_text("utf-8"), re.MULTILINE)
    for copied in instructions("COPY"):
        if copied.startswith("--from=build "):
            continue
        for source in copied.split()[:-1]:
            assert (REPOSITORY / source).exists(), source
            assert source.split("/")[0] in kept, source
    packages = re.search(r"packages = (\[.*\])", (REPOSITORY / "pyproject.toml").read_text("utf-8"))
    assert packages
    copied = {one.split()[0] for one in instructions("COPY")}
    assert set(yaml.safe_load(packages[1])) <= copied


def test_the_image_is_installed_with_hashes_and_runs_as_nobody_special() -> None:
    assert len(re.findall(r"^FROM ", DOCKERFILE, re.MULTILINE)) == 3
    installs = [one for one in instructions("RUN") if "pip install" in one]
    assert len(installs) == 3
    assert all("--require-hashes" in one or "--no-deps" in one for one in installs)
    assert instructions("USER") == ["threadhand"]
    assert instructions("HEALTHCHECK")
    assert instructions("ENTRYPOINT") == ['["threadhand"]']


def test_every_figure_is_explained_and_every_name_in_the_explanation_is_a_figure() -> None:
    families = text_string_to_metric_families(Metrics().render_text(None).decode())
    kinds = {family.name: family.type for family in families}
    ours = {
        f"{name}_total" if kind == "counter" else name for name, kind in kinds.items() if name.startswith("threadhand_")
    }
    explained = set(re.findall(r"^\| `(threadhand_\w+)", OPERATIONS, re.MULTILINE))
    assert explained == ours
    for name in re.findall(r"threadhand_\w+", OPERATIONS):
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in ours or plain in ours, name


RULES = REPOSITORY / "deploy" / "alerts.yaml"
TRIED = FIXTURES / "alerts.yaml"


def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def counted() -> dict[str, set[str]]:
    """The labels of each series once everything has been counted that alerts ask for."""
    metrics = Metrics()
    for step in get_args(Step):
        with metrics.time_step(step):
            pass
    metrics.observe_platform_call("slack", "chat.update", 429, 0.1)
    metrics.count_usage("m", Usage())
    text = metrics.render_text(None).decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {one.name: {*one.labels} - {"le"} for one in samples}


def test_every_alert_fires_when_it_should_and_at_nothing_else(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        lacking("promtool", "there is no promtool (Debian: prometheus)")
    shutil.copy(RULES, tmp_path / "alerts.yaml")
    shutil.copy(TRIED, tmp_path / "tried.yaml")
    done = subprocess.run([promtool, "test", "rules", "tried.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = re.findall(r"alertname: (\w+)", TRIED.read_text("utf-8"))
    assert sorted(tried) == sorted(rules())


def test_every_alert_asks_for_figures_and_labels_that_are_counted() -> None:
    known = counted()
    for name, rule in rules().items():
        asked = re.findall(r"(threadhand_\w+)(?:{(\w+))?", rule["expr"])
        assert asked, name
        for figure, label in asked:
            assert figure in known, figure
            assert not label or label in known[figure], (figure, label)


def test_an_operator_is_told_what_to_do_about_each_alert() -> None:
    section = OPERATIONS.split("\n## Alarms\n")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|[^|]+\|[^|]+\|$", section, re.MULTILINE)
    assert told == list(rules())
