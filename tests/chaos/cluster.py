"""A deployment under test: bots and workers in separate processes that share one PostgreSQL and one Redis."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

from sqlalchemy import text

from bots.demo.thread_reader import messages_of, text_of
from core.domain.errors import StorageUnavailable
from storage.sql.database import Database
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.chaos.open_buttons import open_buttons_of
from tests.chaos.program import Program
from tests.contracts.redis_servers import redis_client
from tests.databases import opened

NO_WORKER = ("up", "--no-worker")
WORKER = ("worker",)
START_SECONDS = 60.0
STREAM = 20
CHOICE = "This one"
SCENARIO = f"""
conversations:
  - name: talk
    when: {{user: {{contains: "Hello"}}}}
    capture: {{token: 'token (\\w+)'}}
    steps:
      - text: "Done {{{{token}}}}."
  - name: work
    when: {{user: {{contains: "Work"}}}}
    capture: {{token: 'token (\\w+)'}}
    steps:
      - text: "I begin."
        calls:
          - name: execute_command
            arguments: {{command: "echo {{{{token}}}} >> marks.txt; sleep 1", blocking: true, session_name: main}}
      - calls:
          - name: full_file_rewrite
            arguments: {{file_path: "{{{{token}}}}.txt", file_contents: "made"}}
      - calls:
          - name: complete
            arguments: {{text: "Done {{{{token}}}}.", attachments: ["{{{{token}}}}.txt"]}}
  - name: nap
    when: {{user: {{contains: "Nap"}}}}
    capture: {{token: 'token (\\w+)'}}
    steps:
      - calls:
          - name: execute_command
            arguments: {{command: "echo asleep >> marks.txt; sleep 60", blocking: true, session_name: main}}
      - text: "Done {{{{token}}}}."
  - name: stream
    when: {{user: {{contains: "Stream"}}}}
    capture: {{token: 'token (\\w+)'}}
    steps:
      - text: "{"word " * STREAM}Done {{{{token}}}}."
        chunk_characters: 5
        chunk_delay_seconds: 0.1
  - name: question
    when: {{user: {{contains: "Ask"}}}}
    capture: {{token: 'token (\\w+)'}}
    steps:
      - calls:
          - name: ask
            arguments: {{text: "Which one?", options: [Other, {CHOICE}]}}
      - text: "Done {{{{token}}}}."
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message that a test has sent. The answer contains `Done <token>.`, and `files` are attached to it."""

    token: str
    thread_id: str
    message_id: str
    files: tuple[str, ...] = ()
    is_question: bool = False

    @property
    def runs(self) -> int:
        """The number of runs. The reply to a question starts a second run."""
        return 2 if self.is_question else 1


@dataclass(kw_only=True)
class Cluster:
    """Bots, which receive messages and show runs, and workers, which execute runs. No process is started yet."""

    stage: Stage
    bots: list[Program]
    workers: list[Program]
    database: Database
    sent: list[SentMessage] = field(default_factory=list[SentMessage])

    async def start(self) -> None:
        for bot in self.bots:
            bot.start(arguments=NO_WORKER)
        for worker in self.workers:
            worker.start(arguments=WORKER)
        await self.connected()

    async def start_busy(self) -> None:
        """Starts the processes, one run that streams, and another that executes a command."""
        await self.start()
        await self.say("Stream", "a1")
        await self.say("Work", "a2")
        await self.until(lambda: self.stage.workspace_file("marks.txt"), "the command runs")

    async def connected(self) -> None:
        """Waits until all running bots are connected and, for Discord, have stored their channel cursors."""
        running = [bot for bot in self.bots if bot.is_running]

        def is_through() -> bool:
            assert all(bot.is_running for bot in running), self.report()
            return self.stage.view().is_bot_connected and all(is_connected(bot, self.stage.name) for bot in running)

        await self.until(is_through, "the bots connect", seconds=START_SECONDS)
        if self.stage.name == "discord":
            await self.until_rows("SELECT scope FROM inbound_cursor", "the channels are noted")

    async def say(self, kind: str, token: str, *, thread_id: str = "") -> SentMessage:
        """Sends a message that opens a thread or continues one. Kinds: Hello, Work, Nap, Stream, Ask."""
        bot = self.stage.view().bot_name
        said = await self.stage.platform.say(
            PERSON, self.stage.channel_id, f"@{bot} {kind}, token {token}", thread_id=thread_id or None
        )
        files = (f"{token}.txt",) if kind == "Work" else ()
        message = SentMessage(
            token=token, thread_id=thread_id or said, message_id=said, files=files, is_question=kind == "Ask"
        )
        self.stage.thread_id = self.stage.thread_id or message.thread_id
        self.sent.append(message)
        return message

    async def until(self, holds: Callable[[], object], what: str, *, seconds: float = 60) -> None:
        try:
            await self.stage.until(holds, what, seconds=seconds)
        except AssertionError:
            raise AssertionError(f"within {seconds:.0f} s: {what}\n{self.report()}") from None

    def has_ended(self, token: str) -> bool:
        """Whether the message is answered and its thread has no enabled button any more."""
        (message,) = (one for one in self.sent if one.token == token)
        ours = [one for one in messages_of(self.stage.view(), message.thread_id) if one.is_bot]
        is_answered = any(f"Done {token}." in text_of(one) for one in ours)
        return is_answered and not any(open_buttons_of(one) for one in ours)

    async def rows(self, query: str) -> list[tuple[object, ...]]:
        return await self.database.read(lambda c: [tuple(row) for row in c.execute(text(query))])

    async def until_rows(self, query: str, what: str, *, seconds: float = 60) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not await self._rows_or_none(query):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"within {seconds:.0f} s: {what}\n{self.report()}") from None

    async def _rows_or_none(self, query: str) -> list[tuple[object, ...]]:
        with suppress(StorageUnavailable):
            return await self.rows(query)
        return []

    async def runs(self) -> list[str]:
        return [str(status) for (status,) in await self.rows("SELECT status FROM run ORDER BY 1")]

    def report(self) -> str:
        """Returns a report for debugging a failed test."""
        logs = [f"--- {one.log_path.name}\n{_shortened(one.log())}" for one in self.programs()]
        return "\n".join((self.stage.report(), *logs))

    def programs(self) -> Sequence[Program]:
        return (*self.bots, *self.workers)


def _shortened(log: str) -> str:
    """Returns the last 60 lines of the log, without repeated lines."""
    seen: set[str] = set()
    lines: list[str] = []
    for line in log.splitlines():
        said = line.partition(" ")[2]
        if said not in seen:
            lines.append(line)
        seen.add(said)
    return "\n".join(lines[-60:])


def is_connected(bot: Program, platform: PlatformName) -> bool:
    """Whether the bot's log shows a connection. Always true for Discord, whose simulator counts connections."""
    return platform == "discord" or "slack: connected" in bot.log_of_this_start()


@asynccontextmanager
async def open_cluster(
    platform: PlatformName,
    database_url: str,
    redis_url: str,
    *,
    scenario: str = SCENARIO,
    bots: int = 1,
    workers: int = 2,
    sandbox: str = "unsafe-process",
    **settings: str,
) -> AsyncGenerator[Cluster, None]:
    """Context manager: yields a cluster with an empty database and an empty Redis. Ends all processes at the end."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        async with redis_client(redis_url):
            pass  # entering the context empties Redis
        stage = await stack.enter_async_context(
            staged(platform, scenario, sandbox=sandbox, database_url=database_url, redis_url=redis_url, **settings)
        )
        first = stage.program
        more = [first.beside(f"bot{number}") for number in range(1, bots)]
        crowd = [first.beside(f"worker{number}") for number in range(workers)]
        for program in (*more, *crowd):
            stack.callback(program.kill)
        yield Cluster(stage=stage, bots=[first, *more], workers=crowd, database=database)
