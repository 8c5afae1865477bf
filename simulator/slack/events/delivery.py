"""Events and interactions on their way to the app: filtered, repeated until taken, and disturbed on demand."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Literal, Protocol

from simulator.faults import Fault, FaultKind, Faults
from simulator.recording import record
from simulator.serving import spawn
from simulator.slack.events.payloads import NotAcknowledged, Payload
from simulator.slack.events.recipients import event_callback
from simulator.slack.settings import SlackSettings
from simulator.slack.world import Workspace

log = logging.getLogger(__name__)

EnvelopeKind = Literal["events_api", "interactive", "slash_commands"]

_EVENT_SCOPES: dict[str, tuple[str, ...]] = {
    "app_mention": ("app_mentions:read",),
    "message.channels": ("channels:history",),
    "message.groups": ("groups:history",),
    "message.im": ("im:history",),
    "message.mpim": ("mpim:history",),
    "reaction_added": ("reactions:read",),
    "reaction_removed": ("reactions:read",),
    "assistant_thread_started": ("assistant:write",),
    "member_joined_channel": ("channels:read", "groups:read"),
}


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One payload on its way. `attempt` counts the repetitions; `reason` says why the last try failed."""

    kind: EnvelopeKind
    payload: Payload
    attempt: int = 0
    reason: str = ""
    accepts_answer: bool = False


class Transport(Protocol):
    """The way to the app: Socket Mode or HTTP."""

    def is_connected(self) -> bool: ...

    async def send(self, delivery: Delivery, *, ack_seconds: float) -> Payload | None:
        """The body of the app's acknowledgement. Raises NotAcknowledged."""
        ...

    async def wait_until_connected(self, seconds: float) -> bool: ...


@dataclass(slots=True)
class Outbox:
    """Delivers what happens to the app. Events are repeated, interactions are not, as on the real platform."""

    settings: SlackSettings
    faults: Faults
    transport: Transport
    _under_way: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _held: "tuple[Payload, asyncio.TimerHandle] | None" = None

    def emit(self, workspace: Workspace, kind: str, event: Payload) -> None:
        """Takes an event. The app hears of it by its subscriptions and scopes, in an organisation also where it was
        installed."""
        organisation = workspace.organisation
        if organisation is None or organisation.hears(workspace.team_id):
            self.tell(kind, event_callback(workspace, event))

    def tell(self, kind: str, body: Payload) -> None:
        """Takes the body of an event."""
        if kind not in self.settings.subscriptions or not self._may_see(kind):
            return
        if self._held is not None:
            earlier, timer = self._held
            self._held = None
            timer.cancel()
            self._start(body)
            self._start(earlier)
            return
        if fault := self._fault(kind, "reorder"):
            loop = asyncio.get_running_loop()
            self._held = body, loop.call_later(fault.seconds, self._release)
            return
        self._start(body, kind)
        if self._fault(kind, "duplicate"):
            self._start(body)

    def _fault(self, kind: str, fault: FaultKind) -> Fault | None:
        """An event may be named by its subscription (`message.im`) or by its type alone (`message`)."""
        return self.faults.take(kind, fault) or self.faults.take(kind.partition(".")[0], fault)

    def _may_see(self, kind: str) -> bool:
        needed = _EVENT_SCOPES.get(kind)
        return needed is None or any(scope in self.settings.scopes for scope in needed)

    def _release(self) -> None:
        if self._held is not None:
            body, _ = self._held
            self._held = None
            self._start(body)

    def _start(self, body: Payload, kind: str = "") -> None:
        fault = self._fault(kind, "delay") if kind else None
        seconds = fault.seconds if fault else 0.0
        task = spawn(self._deliver(body, seconds), name="slack event")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _deliver(self, body: Payload, seconds: float) -> None:
        if seconds:
            await asyncio.sleep(seconds)
        delivery = Delivery(kind="events_api", payload=body)
        for pause in (*self.settings.retry_seconds, None):
            if not await self.transport.wait_until_connected(self.settings.offline_seconds):
                break
            try:
                await self._send(delivery)
                return
            except NotAcknowledged as failure:
                if pause is None or failure.reason == "no_retry":
                    break
                delivery.attempt += 1
                delivery.reason = failure.reason
                await asyncio.sleep(pause)
        log.warning("the app never took the event %s", body["event_id"])

    async def ask(self, delivery: Delivery, *, name: str) -> Payload | None:
        """Delivers an interaction once and gives the app's answer.

        Raises TimeoutError where the app did not acknowledge in time: the person then sees a warning sign.
        """
        if fault := self.faults.take(name, "delay"):
            await asyncio.sleep(fault.seconds)
        try:
            return await self._send(delivery)
        except NotAcknowledged as failure:
            raise TimeoutError(
                f"the app did not answer within {self.settings.ack_seconds:g} s ({failure.reason})"
            ) from failure

    async def _send(self, delivery: Delivery) -> Payload | None:
        record(f"slack {delivery.kind}", delivery.payload)
        answer = await self.transport.send(delivery, ack_seconds=self.settings.ack_seconds)
        if answer:
            record(f"slack {delivery.kind}: acknowledgement", answer)
        return answer

    @property
    def is_quiet(self) -> bool:
        """Whether every event was taken, or given up."""
        return not self._under_way

    async def close(self) -> None:
        """Drops whatever is still under way."""
        if self._held is not None:
            self._held[1].cancel()
            self._held = None
        for task in list(self._under_way):
            task.cancel()
        if self._under_way:
            await asyncio.wait(list(self._under_way))
