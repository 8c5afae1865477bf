"""Runs an evaluation: starts the program once for all tasks that need the same settings, and plays them."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from bots.demo.environment import DemoWorld, start_demo
from bots.eval.attempt import attempt_task
from bots.eval.scripted_models import PLAYERS, Player, build_scenario
from bots.settings import Settings
from core.domain.errors import ConfigurationError
from simulator.threadbench.page import comparison_lines, comparison_page, result_page, summary_lines
from simulator.threadbench.results import Attempt, EvalResult, TaskResult, compare
from simulator.threadbench.task import Task, TaskInvalid, load_tasks
from simulator.threadbench.website import Website, served_website

log = logging.getLogger(__name__)

SCRIPTED = "scripted:"
TOOLS_SECONDS_MAX = 60.0
"""How long the tool server of the tasks may take to start."""
TOGETHER_MAX = 60
"""The maximum number of attempts that share one program. Each attempt has a channel of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """What to evaluate and how. `tasks_dir` None: Threadbench. `names`: only these tasks. `agent_file`: the YAML of
    the agent to evaluate instead of the default one. `out_dir`: where to write the result."""

    model: str = ""
    tasks_dir: Path | None = None
    names: tuple[str, ...] = ()
    is_smoke: bool = False
    attempts: int = 1
    parallel: int = 4
    agent_file: Path | None = None
    out_dir: Path | None = None


async def run_eval(settings: Settings, options: EvalOptions, say: Callable[[str], None]) -> int:
    """Runs the evaluation and writes `result.json` and `result.html`. Returns 1 if an attempt failed.

    Raises ConfigurationError if the tasks cannot be read or the program cannot start."""
    try:
        tasks = load_tasks(options.tasks_dir, options.names)
    except TaskInvalid as error:
        raise ConfigurationError(str(error)) from error
    tasks = tuple(task for task in tasks if task.is_smoke or not options.is_smoke)
    result = await evaluate(settings, tasks, options, say)
    if options.out_dir is not None:
        options.out_dir.mkdir(parents=True, exist_ok=True)
        (options.out_dir / "result.json").write_text(result.model_dump_json(indent=1), "utf-8")
        (options.out_dir / "result.html").write_text(result_page(result), "utf-8")
        say(f"Written to {options.out_dir / 'result.json'} and result.html.")
    for line in summary_lines(result):
        say(line)
    return 0 if result.pass_at(1) == 1 else 1


def compare_results(before: Path, after: Path, out_dir: Path | None) -> list[str]:
    """Compares two `result.json` files. Returns lines for a terminal, and writes `comparison.html` to `out_dir`.

    Raises ConfigurationError if a file is no result."""
    try:
        comparison = compare(*(EvalResult.model_validate_json(path.read_text("utf-8")) for path in (before, after)))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The results cannot be compared: {error}") from error
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
        (out_dir / "comparison.html").write_text(comparison_page(comparison), "utf-8")
    return list(comparison_lines(comparison))


async def evaluate(
    settings: Settings, tasks: Sequence[Task], options: EvalOptions, say: Callable[[str], None] = lambda _line: None
) -> EvalResult:
    """Plays every task `options.attempts` times. Raises ConfigurationError if the program cannot start."""
    started, clock = datetime.now(UTC), time.monotonic()
    found: dict[str, list[Attempt]] = {task.name: [] for task in tasks}
    async with served_website(tasks) as site:
        for group in _groups(tasks):
            for _ in range(options.attempts):
                played = await _play_group(settings, group, options, site, say)
                for task, attempt in zip(group, played, strict=True):
                    found[task.name].append(attempt)
    agent = f", agent {options.agent_file.stem}" if options.agent_file else ""
    return EvalResult(
        subject=f"{options.model or settings.model}{agent}",
        started_at=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 1),
        tasks=tuple(
            TaskResult(name=task.name, title=task.title, area=task.area, attempts=tuple(found[task.name]))
            for task in tasks
        ),
    )


async def _play_group(
    settings: Settings, group: Sequence[Task], options: EvalOptions, site: Website, say: Callable[[str], None]
) -> list[Attempt]:
    """Plays tasks with equal settings in one program, some of them at the same time."""
    tasks = [task.with_site(site.url) for task in group]
    player = _player(options.model)
    world = DemoWorld(
        people=tuple(dict.fromkeys(person for task in tasks for person in task.people)),
        channels=tuple(task.name for task in tasks),
        agent=options.agent_file.read_text("utf-8") if options.agent_file else "",
        changes=_program_settings(tasks[0], site),
        has_rate_limits=False,
    )
    model = "" if player else (options.model or settings.model)
    if not model and not player:
        raise ConfigurationError(
            f"Choose a model: --model <provider>/<model>, or --model {SCRIPTED}golden for the references."
        )
    played = settings.model_copy(update={"model": model})
    scenario = build_scenario(tasks, player) if player else None
    turns = asyncio.Semaphore(options.parallel)
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(start_demo(played, scenario=scenario, world=world))
        try:
            async with asyncio.timeout(TOOLS_SECONDS_MAX):
                while not await stage.program.parts.mcp_servers.tools():  # noqa: ASYNC110 - it has no event for it
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            message = f"The tool server of the tasks did not start within {TOOLS_SECONDS_MAX:g} s."
            raise ConfigurationError(message) from error

        async def attempt(task: Task) -> Attempt:
            async with turns:
                done = await attempt_task(task, stage)
            say(f"{'passed' if done.passed else 'FAILED'}  {task.name}  {done.seconds:.1f} s")
            return done

        return list(await asyncio.gather(*map(attempt, tasks)))


def _program_settings(task: Task, site: Website) -> dict[str, object]:
    """Returns the settings that all tasks share, and those of the task itself."""
    port = site.url.rpartition(":")[2]
    shared: dict[str, object] = {
        "budget_user_day_usd": None,
        "budget_workspace_day_usd": None,
        "tavily_api_key": SecretStr("simulated"),
        "tavily_api_url": site.url,
        "fetch_allow": (f"127.0.0.1:{port}",),
    }
    unknown = set(task.settings) - set(Settings.model_fields)
    if unknown:
        raise ConfigurationError(f"{task.name}: there is no setting {', '.join(sorted(unknown))}.")
    return {**shared, **task.settings}


def _groups(tasks: Sequence[Task]) -> list[list[Task]]:
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(json.dumps(dict(task.settings), sort_keys=True), []).append(task)
    return [
        group[start : start + TOGETHER_MAX] for group in groups.values() for start in range(0, len(group), TOGETHER_MAX)
    ]


def _player(model: str) -> Player | None:
    if not model.startswith(SCRIPTED):
        return None
    name = model.removeprefix(SCRIPTED)
    if name in PLAYERS:
        return name
    raise ConfigurationError(f"There is no scripted model {name}: choose {', '.join(PLAYERS)}.")
