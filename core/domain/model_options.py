"""Options of model calls that a model, an agent or a channel may set."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

_OWN_FIELDS = re.compile(
    r"(model|messages|input|instructions|tools?_?\w*|stop|temperature|stream\w*|store|include|reasoning_effort"
    r"|max_\w*|num_\w*|timeout|drop_params|headers|client|proxy|fallbacks|ssl_\w*"
    r"|(api|aws|azure|base|custom|extra|litellm|mock|vertex)_\w*)"
)
"""Request fields that the program sets itself, or that say where and with which key a library sends the request."""
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _extra_fields(value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    for name in value:
        if _OWN_FIELDS.fullmatch(name) or not _FIELD.fullmatch(name):
            raise ValueError(f"{name!r} is no extra request field: the program sets it, or its name is odd")
    return value


THINKING_TOKENS = {"minimal": 1_024, "low": 4_096, "medium": 8_192, "high": 16_384, "xhigh": 32_768}


class ModelOptions(BaseModel):
    """Options of a model call. An option that is not set keeps the provider's default. `extra` holds further fields of
    the request, for example `{"thinking": {"type": "enabled", "budget_tokens": 4000}}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    answer_tokens: Annotated[int, Field(ge=1)] | None = None
    tool_choice: Literal["auto", "none", "required"] | None = None
    extra: Annotated[Mapping[str, JsonValue], AfterValidator(_extra_fields)] = Field(
        default_factory=dict[str, JsonValue]
    )

    def replaced_by(self, other: "ModelOptions") -> "ModelOptions":
        """Returns these options, overridden by those that `other` sets."""
        fields = other.model_dump(exclude_none=True)
        extra = {**self.extra, **other.extra}
        return self.model_copy(update={**fields, "extra": extra})

    def for_another_model(self) -> "ModelOptions":
        """Returns what applies to other models, too, than the one that the options were chosen for."""
        return ModelOptions(tool_choice=self.tool_choice)

    @property
    def thinking_tokens(self) -> int:
        """About how many tokens the model may think with these options. They count as part of its answer."""
        match self.extra.get("thinking"):
            case {"budget_tokens": int(tokens)}:
                return tokens
            case _:
                return THINKING_TOKENS.get(self.effort or "none", 0)

    def __str__(self) -> str:
        """Returns the options as users see them, or an empty string if none is set."""
        fields = self.model_dump(exclude_none=True, exclude={"extra"})
        parts = [f"{name.replace('_', ' ')} {value}" for name, value in fields.items()]
        return ", ".join((*parts, *sorted(self.extra)))


NO_OPTIONS = ModelOptions()
