"""Settings of the agent loop."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPolicy:
    """`xml_calls_max` applies to text dialects only; 0 means no limit."""

    turns_max: int = 100
    continuations_max: int = 25
    is_sequential: bool = False
    executes_on_stream: bool = True
    is_streamed: bool = True
    xml_calls_max: int = 0
