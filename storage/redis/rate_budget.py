"""The rate budget of many processes: a script in Redis by its clock, and a stream that announces refusals."""

import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.failpoints import Failpoint
from storage.redis.streams import Fields, RedisBreaker, RedisStreams, StreamListener

log = logging.getLogger(__name__)

_STREAM = "threadhand:refusals"
_STREAM_SECONDS = 600
_STREAM_LENGTH_MAX = 200
_TAKE = Failpoint("redis.take_turn")
_REFUSE = Failpoint("redis.refuse_calls")

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local function count(key)
  local found = redis.call('HMGET', key, 'full', 'refused', 'paced')
  return tonumber(found[1]) or 0, tonumber(found[2]) or 0, tonumber(found[3]) or 0
end
local function keep(key, full, refused, paced)
  local function exact(number) return string.format('%.3f', number) end
  redis.call('HSET', key, 'full', exact(full), 'refused', exact(refused), 'paced', exact(paced))
  redis.call('PEXPIRE', key, math.ceil(math.max(full, paced) - now) + 1000)
end
"""
# KEYS: the counter. ARGV: the longest wait, the interval, the burst, and 1 if the limit always applies.
# GCRA; returns microseconds, because Redis truncates numbers to integers
_TAKE_SCRIPT = (
    _NOW
    + """
local full, refused, paced = count(KEYS[1])
local at = math.max(now, refused)
if ARGV[4] == '1' or now < paced then
  at = math.max(at, full - tonumber(ARGV[3]))
  if at - now <= tonumber(ARGV[1]) then
    keep(KEYS[1], math.max(full, at) + tonumber(ARGV[2]), refused, paced)
  end
end
return math.ceil((at - now) * 1000)
"""
)
# KEYS: the counters, and the stream last. ARGV: length of the refusal, how long the pace is kept after it, length and
# lifetime of the stream, the stream entry, then the burst of each counter.
_REFUSE_SCRIPT = (
    _NOW
    + """
for i = 1, #KEYS - 1 do
  local full, refused, paced = count(KEYS[i])
  refused = math.max(refused, now + tonumber(ARGV[1]))
  keep(KEYS[i], math.max(full, refused + tonumber(ARGV[5 + i])), refused, refused + tonumber(ARGV[2]))
end
redis.call('XADD', KEYS[#KEYS], 'MAXLEN', '~', ARGV[3], '*', 'refusal', ARGV[5])
redis.call('EXPIRE', KEYS[#KEYS], ARGV[4])
return 0
"""
)


class RateAllowance(Protocol):
    """A limit that has a counter in Redis. `bots.delivery.rate_limiter.RateLimit` has this shape."""

    @property
    def key(self) -> str: ...
    @property
    def interval_seconds(self) -> float: ...
    @property
    def burst_seconds(self) -> float: ...
    @property
    def is_proactive(self) -> bool: ...


AllowanceT = TypeVar("AllowanceT", bound=RateAllowance)
AnyAllowanceT = TypeVar("AnyAllowanceT", bound=RateAllowance, contravariant=True)


class LocalRateBudget(Protocol[AnyAllowanceT]):
    """The budget that this process keeps, of its own refusals and announced ones. It is used while Redis doesn't
    answer."""

    learnt_seconds: float

    async def reserve(self, limit: AnyAllowanceT, *, wait_seconds_max: float) -> float: ...
    def applies_now(self, limit: AnyAllowanceT) -> bool: ...
    def is_blocked(self, limit: AnyAllowanceT) -> bool: ...
    async def record_refusal(self, limits: Sequence[AnyAllowanceT], *, seconds: float) -> None: ...
    def record_limit_refusal(self, key: str, seconds: float, burst_seconds: float) -> None: ...


class RedisRateBudget(Generic[AllowanceT]):
    """Implements `bots.delivery.rate_limiter.RateBudget` over Redis.

    Redis is asked only if a call may have to wait. Refusals reach the other processes through a stream, so calls that
    are not limited cost no round trip."""

    def __init__(
        self,
        client: Redis,
        streams: RedisStreams,
        own: LocalRateBudget[AllowanceT],
        breaker: RedisBreaker | None = None,
    ) -> None:
        self._own = own
        self._streams = streams
        self._breaker = breaker or RedisBreaker()
        self._take = client.register_script(_TAKE_SCRIPT)
        self._refuse = client.register_script(_REFUSE_SCRIPT)

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[None, None]:
        """Context manager: inside the block, this process receives the refusals of others."""
        async with self._streams.listen(_STREAM, StreamListener(self._note_refusal, lambda: None)):
            yield

    async def reserve(self, limit: AllowanceT, *, wait_seconds_max: float) -> float:
        if not self._own.applies_now(limit):
            return 0.0
        milliseconds = [1000 * one for one in (wait_seconds_max, limit.interval_seconds, limit.burst_seconds)]
        try:
            with _TAKE:
                async with self._breaker.call():
                    answer = cast(object, await self._take([_key(limit)], [*milliseconds, int(limit.is_proactive)]))
        except (RedisError, OSError):
            return await self._own.reserve(limit, wait_seconds_max=wait_seconds_max)
        return float(str(answer)) / 1_000_000

    def is_blocked(self, limit: AllowanceT) -> bool:
        return self._own.is_blocked(limit)

    async def record_refusal(self, limits: Sequence[AllowanceT], *, seconds: float) -> None:
        await self._own.record_refusal(limits, seconds=seconds)
        entry = json.dumps([[one.key, seconds, one.burst_seconds] for one in limits])
        arguments: list[str | float] = [seconds * 1000, self._own.learnt_seconds * 1000]
        arguments += [_STREAM_LENGTH_MAX, _STREAM_SECONDS, entry]
        arguments += [one.burst_seconds * 1000 for one in limits]
        try:
            with _REFUSE:
                async with self._breaker.call():
                    await self._refuse([*(_key(one) for one in limits), _STREAM], arguments)
        except (RedisError, OSError) as error:
            log.debug("a refusal is known only to this process: %s", error)

    def _note_refusal(self, fields: Fields) -> None:
        try:
            for key, seconds, burst_seconds in json.loads(fields[b"refusal"]):
                self._own.record_limit_refusal(str(key), float(seconds), float(burst_seconds))
        except (ValueError, TypeError, KeyError):
            log.warning("skipping an unreadable entry in the stream of refused calls")


def _key(allowance: RateAllowance) -> str:
    return f"threadhand:rate:{allowance.key}"
