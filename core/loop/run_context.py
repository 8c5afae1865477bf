"""Settings of the agent loop."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPolicy:
    """Limits and settings of the agent loop. `xml_calls_max` applies only to text dialects; 0 means no limit."""

    turns_max: int = 100
    continuations_max: int = 25
    is_sequential: bool = False
    executes_on_stream: bool = True
    is_streamed: bool = True
    xml_calls_max: int = 0
