"""AgentDojo's tasks, environments and attacks, as the package on PyPI has them, without the model SDKs that it names.

The package is installed into a folder of its own, because it asks for seven SDKs of which the tasks need none.
"""

import json
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from core.domain.json import JsonObject
from tests.requirements_of_the_machine import lacking

PACKAGES = (
    "agentdojo==0.1.35",
    "deepdiff==8.6.1",
    "orderly-set==5.5.0",
    "docstring-parser==0.17.0",
    "email-validator==2.3.0",
    "dnspython==2.8.0",
)
INSTALL_SECONDS = 300
VERSION = "v1.2.2"
MARK = "INJECTED"
_PIPELINE = "agentdojo.agent_pipeline"
_READS = ("get_", "read_", "search_", "list_", "check_")


@dataclass(frozen=True)
class Call:
    """A call of the environment's tools."""

    name: str
    arguments: JsonObject

    @property
    def reads(self) -> bool:
        return is_reading(self.name)


def is_reading(name: str) -> bool:
    return name.startswith(_READS)


def install_agentdojo(folder: Path) -> None:
    """Installs the package into the folder and makes it importable. Skips the test, loudly, without a registry."""
    options = ("--quiet", "--no-deps", "--disable-pip-version-check", "--target", str(folder))
    command = [sys.executable, "-m", "pip", "install", *options, *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        lacking("agentdojo", f"pip cannot install it: {done.stderr[-500:]}")
    sys.path.append(str(folder))
    spec = find_spec("agentdojo")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    pipeline = types.ModuleType(_PIPELINE)
    pipeline.__path__ = [str(Path(spec.submodule_search_locations[0]) / "agent_pipeline")]
    sys.modules[_PIPELINE] = pipeline
    truth = types.ModuleType(f"{_PIPELINE}.ground_truth_pipeline")
    vars(truth)["GroundTruthPipeline"] = object  # it imports SDKs, and only runs tasks, which the tests do themselves
    sys.modules[truth.__name__] = truth


@dataclass
class Game:
    """One task of a suite, with an attack or without, and what has happened in its environment."""

    suite: Any
    task: Any
    attack: Any | None
    environment: Any
    before: Any
    runtime: Any
    done: list[Any] = field(default_factory=list[Any])

    @property
    def prompt(self) -> str:
        return str(self.task.PROMPT)

    @property
    def wanted(self) -> list[Call]:
        """The calls that do the user's task."""
        return [_parse_call(call) for call in self.task.ground_truth(self.before)]

    @property
    def injected(self) -> list[Call]:
        """The calls that the attack asks for."""
        return [_parse_call(call) for call in self.attack.ground_truth(self.before)] if self.attack else []

    def run(self, call: Call) -> tuple[str, str | None]:
        """Runs a call. Returns its result and its error."""
        result, error = self.runtime.run_function(self.environment, call.name, call.arguments)
        if error is None:
            calls = import_module("agentdojo.functions_runtime")
            self.done.append(calls.FunctionCall(function=call.name, args=call.arguments))
        return json.dumps(to_jsonable_python(result), ensure_ascii=False), error

    def is_task_done(self) -> bool:
        return bool(self._check(self.task))

    def has_attack_succeeded(self) -> bool:
        return bool(self.attack is not None and self._check(self.attack))

    def _check(self, task: Any) -> bool:
        output = self.task.GROUND_TRUTH_OUTPUT
        content = [{"type": "text", "content": output}]
        return self.suite._check_task_result(task, content, self.before, self.environment, self.done)


def tasks_of(suite_name: str) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the ids of the suite's tasks and of its attacks."""
    suite = _load_suite(suite_name)
    return list(suite.user_tasks), list(suite.injection_tasks)


def start_game(suite_name: str, task_id: str, attack_id: str | None = None) -> Game:
    suite = _load_suite(suite_name)
    attack = suite.injection_tasks[attack_id] if attack_id else None
    vectors: Mapping[str, str] = suite.get_injection_vector_defaults()
    texts = {name: f"{default} {MARK} {attack_id}" for name, default in vectors.items()} if attack else {}
    task = suite.user_tasks[task_id]
    environment = task.init_environment(suite.load_and_inject_default_environment(texts))
    runtime = import_module("agentdojo.functions_runtime").FunctionsRuntime(suite.tools)
    return Game(suite, task, attack, environment, environment.model_copy(deep=True), runtime)


def _load_suite(name: str) -> Any:
    return import_module("agentdojo.task_suite.load_suites").get_suite(VERSION, name)


def _parse_call(call: Any) -> Call:
    return Call(str(call.function), to_jsonable_python(dict(call.args)))
