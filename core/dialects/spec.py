"""A tool as the dialects see it: what a model is told about it, and what its text values are typed by."""

from dataclasses import dataclass

from core.domain.messages import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """`parameters` is a JSON schema of type object. `example` are arguments that show a typical call.

    `content_parameter` names the parameter that stands between the tags in the older XML form.
    """

    name: str
    description: str
    parameters: JsonObject
    example: JsonObject | None = None
    content_parameter: str | None = None
