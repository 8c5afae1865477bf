"""The alerting rules: Prometheus' own tool reads and tries them, and an operator is told what to do about each."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import yaml
from prometheus_client.parser import text_string_to_metric_families

from bots.observability.metrics import Metrics
from core.domain.threads import Usage
from core.observability import Step
from tests.paths import FIXTURES, REPOSITORY
from tests.requirements_of_the_machine import lacking

RULES = REPOSITORY / "deploy" / "alerts.yaml"
TRIED = FIXTURES / "alerts.yaml"
OPERATIONS = (REPOSITORY / "docs" / "operators" / "operations.md").read_text("utf-8")


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
