"""Defines the tasks: a task is a folder with a `task.yaml` and the files that it names.

docs/developers/eval.md describes the format.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from simulator.threadbench.checks import Check
from simulator.threadbench.files import build_file
from simulator.view import SentFile

SITE = "SITE_URL"
"""Stands in a task for the address of its web pages, which is known only when they are served."""
TASK_FILE = "task.yaml"

Area = Literal[
    "tables",
    "documents",
    "code",
    "web",
    "charts",
    "people",
    "corrections",
    "small talk",
    "must ask",
    "must not ask",
    "injection",
    "budget",
    "failing tool",
    "language",
]


class TaskInvalid(ValueError):
    """A task cannot be read. The message names the task and the mistake."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Act(_Strict):
    """What a person does: exactly one of `say`, `press` (a button with this label in it), `edit` (the new text of
    the person's newest message) and `react`.

    `after`: "answer" waits until the agent is done with everything before, "working" until it has begun to work on
    it. `files` name files of the task. `place`: "channel" says it at the top of the channel instead of in the thread.
    """

    by: str = "alice"
    after: Literal["answer", "working"] = "answer"
    say: str = ""
    press: str = ""
    edit: str = ""
    react: str = ""
    files: tuple[str, ...] = ()
    place: Literal["thread", "channel"] = "thread"

    @model_validator(mode="after")
    def _has_one_kind(self) -> "Act":
        if sum(map(bool, (self.say, self.press, self.edit, self.react))) != 1:
            raise ValueError("an act has exactly one of say, press, edit and react")
        return self


class TaskLimits(_Strict):
    """What the agent may use up. A task that needs more is failed."""

    seconds: float = Field(default=300, gt=0)
    turns: int = Field(default=30, gt=0)
    usd: float = Field(default=1.0, gt=0)


class Task(_Strict):
    """A task. `name` is its folder's name, and the name of the channel in which it is played.

    `starts_in`: "thread" puts the acts into the thread of the newest message of the channel. `settings` change
    settings of the program. `pages` are web pages, by path; a page that is a number fails with that HTTP status.
    `golden` is the reference: one entry for each answer of a model that does the task well.
    """

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)
    title: str
    area: Area
    is_smoke: bool = False
    platform: Literal["slack", "discord"] = "slack"
    starts_in: Literal["channel", "thread"] = "channel"
    channel: tuple[Act, ...] = ()
    acts: tuple[Act, ...] = Field(min_length=1)
    files: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    pages: Mapping[str, str | int] = Field(default_factory=dict[str, str | int])
    settings: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    limits: TaskLimits = TaskLimits()
    golden: tuple[JsonValue, ...] = Field(min_length=1)
    checks: tuple[Check, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_its_files(self) -> "Task":
        for act in (*self.channel, *self.acts):
            if missing := set(act.files) - set(self.files):
                raise ValueError(f"{', '.join(sorted(missing))} is not one of its files")
        return self

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(act.by for act in (*self.channel, *self.acts)))

    @property
    def opening(self) -> str:
        """The text that makes the agent begin."""
        return self.acts[0].say

    def sent_files(self, act: Act) -> list[SentFile]:
        return [SentFile(name=name, content=build_file(self.files[name])) for name in act.files]

    def with_site(self, url: str) -> "Task":
        """Returns the task with the address of its web pages filled in."""
        text = self.model_dump_json().replace(SITE, f"{url}/{self.name}")
        return Task.model_validate_json(text)


def load_tasks(folder: Path | None = None, names: Iterable[str] = ()) -> tuple[Task, ...]:
    """Returns the tasks of a folder of tasks, by default Threadbench, in the order of their names.

    `names` choose some of them. Raises TaskInvalid if a task cannot be read or does not exist.
    """
    root = folder or Path(str(files("simulator.threadbench"))) / "tasks"
    found = {path.parent.name: path for path in sorted(root.glob(f"*/{TASK_FILE}"))}
    wanted = tuple(names) or tuple(found)
    if missing := [name for name in wanted if name not in found]:
        raise TaskInvalid(f"There is no task {', '.join(missing)} in {root}.")
    if not found:
        raise TaskInvalid(f"{root} holds no tasks: a task is a folder with a {TASK_FILE}.")
    return tuple(load_task(found[name]) for name in wanted)


def load_task(path: Path) -> Task:
    """Parses the `task.yaml` at `path`. A file of the task is in the YAML, or beside it under its name."""
    name = path.parent.name
    try:
        read = cast(object, yaml.safe_load(path.read_text("utf-8")))
        fields = cast(dict[str, object], read) if isinstance(read, dict) else {}
        beside = {
            one.name: {"base64": b64encode(one.read_bytes()).decode()}
            for one in path.parent.iterdir()
            if one.name != TASK_FILE
        }
        inline = cast(dict[str, object], fields.pop("files", {}))
        return Task.model_validate({**fields, "name": name, "files": {**beside, **inline}})
    except (yaml.YAMLError, OSError, TypeError) as error:
        raise TaskInvalid(f"The task {name} cannot be read: {error}") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)[:5]
        )
        raise TaskInvalid(f"The task {name} has mistakes: {problems}") from error
