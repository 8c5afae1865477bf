"""Which runs were handed over to another place of work lately, so that many processes do it once."""

import logging
import time

from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.failpoints import Failpoint
from storage.redis.streams import answering

HANDOVER_SECONDS = 60
HANDOVERS_KEPT_MAX = 10_000
_BEGIN = Failpoint("redis.begin_handover")
_END = Failpoint("redis.end_handover")

log = logging.getLogger(__name__)


class RedisHandovers:
    """A handover is open for a minute, or until whoever got the run is done with it. Without Redis each process goes
    by what it did itself."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._begun: dict[str, float] = {}

    async def begin(self, run_id: str) -> bool:
        """Whether the caller is to hand it over: nobody has within a minute."""
        try:
            with _BEGIN:
                async with answering():
                    is_first = await self._client.set(
                        _key(run_id), b"1", nx=True, ex=HANDOVER_SECONDS
                    )
        except (RedisError, OSError) as error:
            log.debug("the handover of run %s is known here alone: %s", run_id, error)
            is_first = not self._is_open_here(run_id)
        if is_first:
            self._note(run_id)
        return bool(is_first)

    async def end(self, run_id: str) -> None:
        """From here on it may be handed over again."""
        self._begun.pop(run_id, None)
        try:
            with _END:
                async with answering():
                    await self._client.delete(_key(run_id))
        except (RedisError, OSError) as error:
            log.warning("run %s may be handed over again in a minute alone: %s", run_id, error)

    def _is_open_here(self, run_id: str) -> bool:
        begun_at = self._begun.get(run_id)
        return begun_at is not None and time.monotonic() - begun_at < HANDOVER_SECONDS

    def _note(self, run_id: str) -> None:
        self._begun.pop(run_id, None)
        self._begun[run_id] = time.monotonic()
        while len(self._begun) > HANDOVERS_KEPT_MAX:
            self._begun.pop(next(iter(self._begun)))


def _key(run_id: str) -> str:
    return f"threadhand:handover:{run_id}"
