"""Twelve habits of models, each played through the program and its HTTP API against an endpoint that refuses what
providers refuse."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp

from bots.bootstrap.program import run_program
from bots.settings import load_settings
from core.context.tokens import count_text
from tests.fakes.made_pictures import picture
from tests.fakes.strict_models import Json, serve_strict
from tests.integration.core.llm.test_model_habits import DONE, Habits, calling

Said = tuple[list[Json], str]
STOP = ([DONE], "stop")
RESULT_TOKENS_MAX = 8_200
"""8,000 and the lines around them."""


def use(name: str, number: int = 0, **arguments: object) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def run(command: str, number: int = 0) -> Json:
    return use("execute_command", number, command=command)


def create(contents: str, number: int = 0) -> Json:
    return use("create_file", number, file_path="a.txt", file_contents=contents)


def replace(old: str, new: str, number: int) -> Json:
    return use("str_replace", number, file_path="a.txt", old_str=old, new_str=new)


def calls(*made: Json) -> Said:
    return [calling(*made)], "tool_calls"


@dataclass
class Talk:
    """What a whole run sent to the model, and its answer."""

    model: Habits
    text: str
    folder: Path = field(default_factory=Path)

    def results(self, request: int = -1) -> list[str]:
        messages = self.model.requests[request]["messages"]
        return [str(one["content"]) for one in messages if one["role"] == "tool"]

    def file(self) -> str:
        (found,) = self.folder.glob("**/a.txt")
        return found.read_text()


async def talk(tmp_path: Path, *answers: Said, file: bytes = b"", **settings: str) -> Talk:
    """Plays the answers in one run, which must complete and be refused nothing."""
    model = Habits(answers=answers)
    async with serve_strict(model) as url, program(tmp_path, url, **settings) as http:
        async with http.post("/api/thread") as made:
            thread_id = (await made.json())["thread_id"]
        form = aiohttp.FormData({"text": "Please go."}, default_to_multipart=True)
        if file:
            form.add_field("file", file, filename="picture.png", content_type="image/png")
        async with http.post(f"/api/thread/{thread_id}/messages", data=form) as begun:
            run_id = (await begun.json())["agent_run_id"]
        async with http.get(f"/api/agent-run/{run_id}/stream") as stream:
            assert '"status":"completed"' in (await stream.text()).replace(": ", ":")
        async with http.get(f"/api/thread/{thread_id}/messages") as read:
            messages: list[dict[str, Any]] = (await read.json())["messages"]
    assert model.refusals == []
    said = [json.loads(one["content"]) for one in messages if one["type"] == "assistant"]
    text = "".join(one["content"] or "" for one in said)
    return Talk(model, text, tmp_path / "data")


@asynccontextmanager
async def program(tmp_path: Path, url: str, **settings: str) -> AsyncIterator[aiohttp.ClientSession]:
    named = {
        "model": "openai/strict",
        "llm_base_url": f"{url}/v1",
        "sandbox": "unsafe-process",
        "data_dir": str(tmp_path / "data"),
        "http_port": "0",
        **settings,
    }
    environ = {f"THREADHAND_{name.upper()}": value for name, value in named.items()}
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(run_program(load_settings(environ, None)))
        url = f"http://127.0.0.1:{made.http_port}"
        yield await stack.enter_async_context(aiohttp.ClientSession(url))


async def test_eight_edits_of_one_file_in_one_answer_all_stand(tmp_path: Path) -> None:
    before = "".join(f"old {number}\n" for number in range(8))
    edits = [replace(f"old {number}\n", f"new {number}\n", number) for number in range(8)]
    told = await talk(tmp_path, calls(create(before)), calls(*edits), STOP)
    assert told.file() == before.replace("old", "new")


async def test_an_answer_means_what_its_order_says(tmp_path: Path) -> None:
    made = (create("one\n"), run("cat a.txt", 1), replace("one", "two", 2), run("cat a.txt", 3))
    told = await talk(tmp_path, calls(*made), STOP)
    _, before, _, after = told.results()
    assert "one" in before
    assert "two" in after


async def test_reasoning_goes_back_to_its_provider(tmp_path: Path) -> None:
    thought: Json = {"reasoning_content": "Hm, a file."}
    told = await talk(tmp_path, ([thought, calling(create("x"))], "tool_calls"), STOP)
    (asked,) = [one for one in told.model.requests[1]["messages"] if one.get("tool_calls")]
    assert asked["reasoning_content"] == "Hm, a file."


async def test_a_cut_answer_is_continued_without_a_prefill(tmp_path: Path) -> None:
    first: Said = ([{"content": "The first half, "}], "length")
    told = await talk(tmp_path, first, ([{"content": "the second half."}], "stop"))
    *_, said, asked = told.model.requests[1]["messages"]
    assert (said["role"], asked["role"]) == ("assistant", "user")
    assert "Continue exactly where it stopped" in asked["content"]
    assert told.text == "The first half, the second half."


async def test_a_call_cut_in_the_middle_is_told_to_the_model_and_not_run(tmp_path: Path) -> None:
    cut = create("x" * 100)
    cut["function"]["arguments"] = cut["function"]["arguments"][:60]
    told = await talk(tmp_path, ([calling(cut)], "length"), STOP)
    (result,) = told.results()
    assert "cut off inside this call" in result
    assert not list(told.folder.glob("**/a.txt"))


async def test_call_ids_are_short(tmp_path: Path) -> None:
    long = [run("echo a") | {"id": "a" * 300}, run("echo b") | {"id": "b" * 41}]
    told = await talk(tmp_path, calls(*long), STOP)
    assert [result[0] for result in told.results()] == ["a", "b"]


async def test_arguments_are_not_sent_back_as_results(tmp_path: Path) -> None:
    told = await talk(tmp_path, calls(create("a secret of the arguments")), STOP)
    assert "secret" not in told.results()[0]


async def test_one_result_does_not_fill_the_window(tmp_path: Path) -> None:
    told = await talk(tmp_path, calls(run("seq 1 400000")), STOP)
    (result,) = told.results()
    assert "400000" in result
    assert count_text(result) <= RESULT_TOKENS_MAX
    assert result.startswith("1\n2\n")
    assert ".txt" in result  # where the rest is


async def test_a_short_command_answers_with_its_output(tmp_path: Path) -> None:
    told = await talk(tmp_path, calls(run("echo $((6 * 7)); exit 3")), STOP)
    (result,) = told.results()
    assert result.startswith("42\n")
    assert "exit code 3" in result


async def test_an_attached_picture_is_seen(tmp_path: Path) -> None:
    told = await talk(tmp_path, STOP, file=picture())
    contents = [one["content"] for one in told.model.requests[0]["messages"]]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    (seen,) = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert seen.startswith("data:image/")


async def test_the_prefix_stays_stable(tmp_path: Path) -> None:
    """Each request begins with all messages of the one before it, except its tail."""
    turns = [calls(run(f"echo {number}", number)) for number in range(4)]
    told = await talk(tmp_path, *turns, STOP)
    requests = told.model.requests
    for earlier, later in pairwise(requests):
        assert earlier["tools"] == later["tools"]
        stable = earlier["messages"][:-1]
        assert later["messages"][: len(stable)] == stable


async def test_many_calls_in_one_answer_are_bounded(tmp_path: Path) -> None:
    many = [run(f"echo {number} >> a.txt", number) for number in range(40)]
    told = await talk(tmp_path, calls(*many), STOP)
    assert told.file().split() == [str(number) for number in range(32)]
    assert ["Not run" in one for one in told.results()] == [False] * 32 + [True] * 8
