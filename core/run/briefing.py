"""What a run's prompt is told besides its base: the checklist as it stands, and what the knowledge base has."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from core.context.checklist import todo_in
from core.context.heard import is_said
from core.domain.messages import Message
from core.domain.threads import ThreadInput
from core.knowledge.run_knowledge import KnowledgeDesk
from core.loop.loop import Surroundings
from core.prompt.system_prompt import PromptLayers, layered


def with_todo(around: Surroundings, history: Sequence[Message]) -> Surroundings:
    """The prompt with todo.md as it stands; it stays as it is for the run, so that caches hold."""
    todo = PromptLayers(todo=todo_in(history) or "")
    return replace(around, system_prompt=layered(around.system_prompt, todo))


async def with_knowledge(
    around: Surroundings,
    desk: KnowledgeDesk,
    history: Sequence[Message],
    read_inputs: Callable[[], Awaitable[Sequence[ThreadInput]]],
) -> Surroundings:
    """The prompt with what the knowledge base has on the request, which is read only where it has anything at all; no
    model is asked for it."""
    if not await desk.has_entries():
        return around
    inputs = await read_inputs()
    told = [str(one.content.get("content")) for one in history if is_said(one)]
    question = " ".join(one.text for one in inputs) or (told[-1] if told else "")
    knowledge = PromptLayers(knowledge=await desk.for_prompt(question))
    return replace(around, system_prompt=layered(around.system_prompt, knowledge))
