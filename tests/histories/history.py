"""One random history: people write in threads while processes die, freeze and restart and requests fail."""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from bots.bootstrap.process_messaging import Messaging
from bots.inbound.actions import Outcome, UserAction
from core.domain.budget import Limit
from core.domain.errors import StorageUnavailable
from tests.histories.chat import SimulatedChat
from tests.histories.invariants import Reception, Seen, find_problems, unsettled
from tests.histories.model import CALL_TOKENS, Notebook, ScriptedModel
from tests.histories.platforms import PLATFORMS, Event
from tests.histories.playing import Result, play_history
from tests.histories.program import Program, Servers
from tests.histories.servers import (
    Chance,
    SimulatedBus,
    SimulatedDatabase,
    SimulatedQueue,
    SimulatedSignals,
    SqliteMemory,
)
from tests.histories.users import KINDS, OPERATIONS, Users
from tests.histories.virtual_time import EPOCH_SECONDS, SimulatedProcess, VirtualTimeLoop

STORM_SECONDS = 15.0
SETTLE_SECONDS = 240.0
LOOK_SECONDS = 1.0
QUIET_LOOKS = 5
"""How often in a row nothing is under way at the end. Users press a button sooner than that."""
REDELIVERY_SECONDS = (3.0, 6.0, 10.0)
DOWN_SECONDS_MIN = 1.0
OVERTAKEN_SECONDS_MAX = 4.0
"""How long an event may be on its way, while others overtake it. The first message of a thread often is."""
LAYOUTS: tuple[tuple[tuple[bool, bool], ...], ...] = (
    ((True, True),),
    ((True, True), (True, True)),
    ((True, False), (False, True), (False, True)),
    ((True, False), (True, False), (False, True), (False, True)),
)
"""The processes of a history. Each has a bot, a worker, or both."""


class _Slot:
    """A place where the program runs again and again, for example a machine with a supervisor."""

    def __init__(self, name: str, *, has_bot: bool, has_worker: bool, shows_locks: bool) -> None:
        self.name = name
        self.has_bot = has_bot
        self.has_worker = has_worker
        self.shows_locks = shows_locks
        self.starts = 0
        self.program: Program | None = None
        self.dead_workers: list[str] = []
        self.is_disturbed = False

    @property
    def accepts(self) -> bool:
        program = self.program
        return program is not None and program.receiver is not None and not program.is_closing


def play(seed: int, memory: SqliteMemory, operations: Collection[str] = tuple(OPERATIONS)) -> Result:
    """Plays the history of the seed and checks the invariants at its end."""

    def begin(loop: VirtualTimeLoop) -> _History:
        memory.begin(loop.time)
        return _History(seed, memory, loop, operations)

    return play_history(seed, EPOCH_SECONDS, begin)


class _History:
    def __init__(self, seed: int, memory: SqliteMemory, loop: VirtualTimeLoop, operations: Collection[str]) -> None:
        self.trace: list[str] = []
        self._loop = loop
        self._chance = chance = Chance(seed)
        self._memory = memory
        self._operations = [OPERATIONS[name] for name in OPERATIONS if name in operations]
        self._receptions: dict[str, Reception] = {}
        self._taken: set[str] = set()
        self._acknowledged: set[str] = set()
        self._sent: set[str] = set()
        self._broken: list[str] = []
        random = chance.random
        layout = random.choice(LAYOUTS)
        shows_locks = random.random() < 0.5
        self._slots = [
            _Slot(f"p{n}", has_bot=has_bot, has_worker=has_worker, shows_locks=shows_locks)
            for n, (has_bot, has_worker) in enumerate(layout)
        ]
        self._platform = platform = PLATFORMS[seed % len(PLATFORMS)]()
        chat = SimulatedChat(loop, chance, platform, self.note)
        is_shared = len(layout) > 1
        self._servers = Servers(
            database=SimulatedDatabase(memory, loop, chance),
            messaging=self._shared_messaging() if is_shared else None,
            chat=chat,
            model=ScriptedModel(chance),
            notebook=Notebook(loop, chance, self.note),
            status_after_seconds=random.choice((0.0, 2.0)),
            run_limit=Limit(tokens=random.choice((None, 3 * CALL_TOKENS))),
            chance=chance,
        )
        old = [platform.new_message(n)[0] for n in range(3)]
        threads = [replace(platform.home, thread_key=random.choice(("", old[n]))) for n in range(random.randint(1, 3))]
        self._users = Users(
            loop, chance, chat, platform, threads, note=self.note, send=self._send, click=self._receive_once
        )

    def note(self, line: str) -> None:
        self.trace.append(f"{self._loop.now:9.4f} {line}")

    async def play(self) -> list[str]:
        random, loop = self._chance.random, self._loop
        for slot in self._slots:
            self._start(slot)
        for number in range(random.randint(2, 6)):
            say = partial(self._users.say, f"{random.choice(KINDS)}-{number}")
            loop.later(random.uniform(0, STORM_SECONDS * 0.7), say)
        for _ in range(random.choice((0, 0, 1, 2, 4, 8)) if self._operations else 0):
            act = partial(random.choice(self._operations), self._users)
            loop.later(random.uniform(0.3, STORM_SECONDS), act)
        for _ in range(random.choice((0, 1, 2, 3, 5))):
            disturb: Callable[[], None] = random.choice((self._kill, self._freeze, self._cut_off, self._end))
            loop.later(random.uniform(0.2, STORM_SECONDS), disturb)
        if random.random() < 0.15:
            loop.later(random.uniform(1, STORM_SECONDS), self._users.stop)
        await asyncio.sleep(STORM_SECONDS + 1)
        self._chance.is_calm = True
        self.note("--- calm: no more failures")
        deadline = loop.now + SETTLE_SECONDS
        quiet_looks = 0
        while True:
            waits = self._waits()
            quiet_looks = 0 if waits else quiet_looks + 1
            if self._broken or (waits and loop.now > deadline):
                return self._broken + [f"not settled: {one}" for one in waits]
            if quiet_looks == QUIET_LOOKS:
                break
            await asyncio.sleep(LOOK_SECONDS)
        chat, noted = self._servers.chat.messages, self._servers.notebook.lines
        users = self._users
        seen = Seen(
            user_messages=users.messages,
            stops=users.stops,
            consents=users.consents,
            messages=chat,
            noted=noted,
            commands=users.commands,
            requests=self._servers.model.requests,
            reads_chat=self._servers.chat.is_readable,
            run_tokens_max=self._servers.run_limit.tokens,
            receptions=self._receptions,
            taken=self._taken,
        )
        return find_problems(self._memory, seen)

    def _waits(self) -> list[str]:
        waits = [f"{key} is not acknowledged" for key in sorted(self._sent - self._acknowledged)]
        waits += [f"{slot.name} is disturbed" for slot in self._slots if slot.is_disturbed]
        return waits + unsettled(self._memory, self._servers.chat.messages)

    def _shared_messaging(self) -> Messaging:
        loop, chance = self._loop, self._chance
        return Messaging(
            bus=SimulatedBus(loop, chance), queue=SimulatedQueue(loop, chance), signals=SimulatedSignals(loop, chance)
        )

    # the platform's events

    def _send(self, event: Event, tries: int = 0) -> None:
        """Sends the event to a bot, and again until it is acknowledged, as platforms do; sometimes twice."""
        key = event.key
        self._sent.add(key)
        if key in self._acknowledged:
            return
        for _ in range(2 if self._chance.fails(0.15) else 1):
            delay = self._chance.delay(0.05)
            if self._chance.fails(0.3 if key == event.place.thread_key else 0.05):
                delay += self._chance.random.uniform(0, OVERTAKEN_SECONDS_MAX)
            self._loop.later(delay, lambda: self._receive_once(event))
        pause = REDELIVERY_SECONDS[min(tries, len(REDELIVERY_SECONDS) - 1)]
        self._loop.later(pause, lambda: self._send(event, tries + 1))

    def _receive_once(self, event: Event) -> None:
        slots = [slot for slot in self._slots if slot.accepts]
        if slots:
            program = self._chance.random.choice(slots).program
            assert program is not None
            program.process.start(self._receive(program, event))

    async def _receive(self, program: Program, event: Event) -> None:
        """Carries out what the program reads in an event. Of a press of a button in Discord, its own tasks do so."""
        reception = self._receptions.setdefault(event.key, Reception(begun_at=time.time()))
        assert program.reader is not None
        try:
            for action in program.reader.read(event):
                self._receptions[action.dedupe_key] = reception
                if not (await self._carry_out(program, action)).is_ignored:
                    self._taken.add(event.key)
        except StorageUnavailable:
            self.note(f"{program.process.name} cannot store {event.key}")
            return
        except Exception as error:
            self._broken.append(f"{event.key} cannot be received: {error!r}")
            raise
        reception.ended_at.append(time.time())
        if not self._chance.fails(0.1):
            self._loop.later(self._chance.delay(0.02), lambda: self._acknowledged.add(event.key))

    async def _carry_out(self, program: Program, action: UserAction) -> Outcome:
        assert program.receiver is not None
        reception = self._receptions.setdefault(action.dedupe_key, Reception(begun_at=time.time()))
        outcome = await program.receiver.receive(action)
        self.note(f"{program.process.name} received {type(action).__name__}: run {(outcome.run_id or '')[-4:]}")
        reception.ended_at.append(time.time())
        return outcome

    # disturbances

    def _start(self, slot: _Slot) -> None:
        slot.starts += 1
        slot.is_disturbed = False
        process = SimulatedProcess(self._loop, f"{slot.name}.{slot.starts}")
        slot.program = program = Program(process, self._servers, has_bot=slot.has_bot, has_worker=slot.has_worker)
        dead, slot.dead_workers = slot.dead_workers, []
        self.note(f"{process.name} starts")
        if slot.has_bot:
            program.reader = self._platform.reader(partial(self._carry_out, program))
        process.start(self._run(slot, program, dead if slot.shows_locks else []))

    async def _run(self, slot: _Slot, program: Program, dead_workers: list[str]) -> None:
        """Starts the program, which its supervisor starts again if the database is not there."""
        try:
            await program.run(dead_workers)
        except StorageUnavailable:
            self.note(f"{program.process.name} could not start")
            slot.dead_workers = [*dead_workers, program.worker_id]
            self._loop.later(DOWN_SECONDS_MIN, lambda: self._start(slot))
            program.process.kill()
        except Exception as error:
            self._broken.append(f"{program.process.name} does not start: {error!r}")
            raise

    def _drawn_slot(self) -> _Slot | None:
        slots = [one for one in self._slots if one.program is not None and not one.is_disturbed]
        return self._chance.random.choice(slots) if slots else None

    def _kill(self) -> None:
        if (slot := self._drawn_slot()) is None or slot.program is None:
            return
        process = slot.program.process
        self.note(f"{process.name} is killed")
        process.kill()
        self._restart(slot, self._chance.random.uniform(DOWN_SECONDS_MIN, 8))

    def _restart(self, slot: _Slot, seconds: float) -> None:
        if slot.program is not None:
            slot.dead_workers.append(slot.program.worker_id)
        slot.is_disturbed = True
        slot.program = None
        self._loop.later(seconds, lambda: self._start(slot))

    def _freeze(self) -> None:
        if (slot := self._drawn_slot()) is None or slot.program is None:
            return
        process = slot.program.process
        self.note(f"{process.name} is frozen")
        process.freeze()
        slot.is_disturbed = True

        def thaw() -> None:
            self.note(f"{process.name} continues")
            process.thaw()
            slot.is_disturbed = False

        self._loop.later(self._chance.random.uniform(0.5, 12), thaw)

    def _cut_off(self) -> None:
        """The process does not reach the database for a while."""
        if (slot := self._drawn_slot()) is None or slot.program is None:
            return
        name, unreachable = slot.program.process.name, self._servers.database.cut_off
        self.note(f"{name} is cut off from the database")
        unreachable.add(name)

        def reconnect() -> None:
            self.note(f"{name} reaches the database again")
            unreachable.discard(name)

        self._loop.later(self._chance.random.uniform(0.5, 12), reconnect)

    def _end(self) -> None:
        if (slot := self._drawn_slot()) is None or slot.program is None:
            return
        slot.is_disturbed = True
        self.note(f"{slot.program.process.name} is asked to end")
        slot.program.process.start(self._ended(slot, slot.program))

    async def _ended(self, slot: _Slot, program: Program) -> None:
        try:
            await program.close()
        except StorageUnavailable:
            self.note(f"{program.process.name} could not say that it ends")
        self.note(f"{program.process.name} has ended")
        self._restart(slot, self._chance.random.uniform(DOWN_SECONDS_MIN, 4))
        program.process.kill()
