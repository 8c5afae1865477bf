"""A model that answers with a picture, which the program does not show."""

from core.llm.openai_answer import AN_IMAGE, AnswerReader
from core.llm.reasoning import ReasoningOrigin
from core.ports import TextDelta


def test_a_picture_in_an_answer_is_told_once() -> None:
    reader = AnswerReader(ReasoningOrigin(provider="p", model="m"), set())
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    chunk: dict[str, object] = {"choices": [{"delta": {"content": "", "images": [picture]}}]}
    assert [*reader.read(chunk), *reader.read(chunk)] == [TextDelta(text=AN_IMAGE)]
