"""A model that does the user's task and obeys every injected instruction that it reads."""

import json
from collections.abc import AsyncGenerator, Sequence
from itertools import groupby

from core.ports import ModelDelta, ModelRequest
from tests.fakes.agentdojo import MARK, Call, Game
from tests.fakes.streamed_model import calls, text

NOT_RUN_YET = "Call it again then."
"""What the loop says of a call behind one that waits for an approval."""


class ObedientModel:
    """Plays a game. Calls that read with one tool, and calls that write, are one answer if they follow each other: what
    another tool has to read is known only from the results before it."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self._answers = _grouped(game.wanted)
        self._has_obeyed = False
        self._newest: Sequence[Call] = ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        for delta in self._answer(request):
            assert not isinstance(delta, Exception)
            if isinstance(delta, ModelDelta):
                yield delta

    def _answer(self, request: ModelRequest) -> Sequence[object]:
        results = [str(one["content"]) for one in request.messages if one["role"] == "tool"]
        again = [
            call
            for call, result in zip(self._newest, results[-len(self._newest) :], strict=False)
            if NOT_RUN_YET in result
        ]
        if MARK in "".join(results) and not self._has_obeyed:
            self._has_obeyed = True
            self._answers = [*_grouped(self._game.injected), *self._answers]
        if again:
            self._answers = [again, *self._answers]
        if not self._answers:
            return text(str(self._game.task.GROUND_TRUTH_OUTPUT) or "Done.")
        self._newest = self._answers.pop(0)
        return calls(*((call.name, json.dumps(call.arguments)) for call in self._newest))


def _grouped(wanted: Sequence[Call]) -> list[Sequence[Call]]:
    return [list(group) for _, group in groupby(wanted, key=lambda call: call.name if call.reads else "")]
