"""How a run goes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPolicy:
    """`xml_calls_max` 0 means no limit; it counts for text dialects only."""

    turns_max: int = 100
    continuations_max: int = 25
    is_sequential: bool = False
    executes_on_stream: bool = True
    is_streamed: bool = True
    xml_calls_max: int = 0
