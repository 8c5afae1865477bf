"""Reads context windows and prices of known models from litellm's model table, without importing litellm."""

import importlib.util
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from core.context.limits import ANSWER_SHARE, ContextLimit
from core.domain.budget import Price

log = logging.getLogger(__name__)

FILE_NAME = "model_prices_and_context_window_backup.json"
FILE_BYTES_MAX = 32 * 1024 * 1024
TOKENS_PER_MILLION = 1_000_000
_TALKING = ("chat", "responses", "completion")
_LONG = re.compile(r"input_cost_per_token(_above_(\d+)k_tokens)")
_PRICED = (*_TALKING, "embedding")
_SEPARATORS = re.compile(r"[\s,:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable:
    """Context limits and prices of models.

    The keys are litellm's model names, both with and without the provider."""

    limits: Mapping[str, ContextLimit] = field(default_factory=dict[str, ContextLimit])
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])


def load_model_table(file: Path | None = None) -> ModelTable:
    """Loads the model table. If the file cannot be read, logs a warning and returns an empty table.

    Reads a file of 3 MB, so call it in a thread and not on the event loop."""
    same: dict[object, object] = {}  # most models share their values with others
    try:
        rows = {
            name: (
                f"{row.get('litellm_provider')}/{name}",
                *(same.setdefault(one, one) for one in (_limit(row), _price(row))),
            )
            for name, row in _rows(file)
        }
    except (OSError, ValueError) as error:
        log.warning("no table of models, so their windows go by family and no prices are known: %s", error)
        return ModelTable()
    limits, prices = dict[str, ContextLimit](), dict[str, Price]()
    for name, (full_name, limit, price) in rows.items():
        for each in (name,) if full_name in rows else (full_name, name):
            if isinstance(limit, ContextLimit):
                limits[each] = limit
            if isinstance(price, Price):
                prices[each] = price
    return ModelTable(limits=limits, prices=prices)


def _rows(file: Path | None) -> Iterator[tuple[str, dict[str, object]]]:
    """Yields the rows of the file, or of litellm's own, with the names of their models. Raises OSError, ValueError.

    Reads one row at a time: the whole table takes 8 MB, of which Python would return little to the system."""
    if file is None:
        found = importlib.util.find_spec("litellm")
        if found is None or not found.submodule_search_locations:
            raise OSError("litellm is not installed")
        file = Path(next(iter(found.submodule_search_locations))) / FILE_NAME
    if file.stat().st_size > FILE_BYTES_MAX:
        raise ValueError(f"{file.name} is too large")
    text, decode = file.read_text(), json.JSONDecoder().raw_decode
    if not text.startswith("{"):
        raise ValueError(f"{file.name} is no table")
    at = 1
    while not text.startswith("}", at := _next(text, at)):
        name, at = decode(text, at)
        value, at = decode(text, _next(text, at))
        row = cast(dict[str, object], value) if isinstance(value, dict) else {}
        if row.get("mode") in _PRICED:
            yield str(name), row


def _next(text: str, at: int) -> int:
    """Returns the position of the next key, value or end."""
    return cast(re.Match[str], _SEPARATORS.match(text, at)).end()


def _limit(row: Mapping[str, object]) -> ContextLimit | None:
    """Returns the context limit, or None for embedding models.

    At most `1 / ANSWER_SHARE` of the window is reserved for the answer, because some rows allow an answer to fill the
    whole window."""
    window, answer = row.get("max_input_tokens"), row.get("max_output_tokens")
    if row.get("mode") not in _TALKING or not isinstance(window, int) or window < ANSWER_SHARE:
        return None
    share = window // ANSWER_SHARE
    reserved = min(answer, share) if isinstance(answer, int) and answer > 0 else share
    return ContextLimit(window=window, reserved=reserved)


def _price(row: Mapping[str, object], suffix: str = "") -> Price | None:
    """Returns the price, or None if it is unknown. Keys with a suffix such as `_above_200k_tokens` hold the price of
    long prompts; of several, the first threshold counts."""
    read, written = (_per_million(row, f"{kind}_cost_per_token{suffix}") for kind in ("input", "output"))
    if read is None or written is None or not read + written:
        return None
    cached = _per_million(row, f"cache_read_input_token_cost{suffix}")
    found = [match for key in row if not suffix and "_above_" in key and (match := _LONG.fullmatch(key))]
    first = min(found, key=lambda match: int(match[2]), default=None)
    long = _price(row, first[1]) if first else None
    return Price(
        input_per_million_usd=read,
        cached_per_million_usd=read if cached is None else cached,
        output_per_million_usd=written,
        written_per_million_usd=_per_million(row, f"cache_creation_input_token_cost{suffix}"),
        long_from_tokens=int(first[2]) * 1_000 if first and long else 0,
        long=long,
    )


def _per_million(row: Mapping[str, object], key: str) -> float | None:
    value = row.get(key)
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return value * TOKENS_PER_MILLION
