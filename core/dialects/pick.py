"""Picking the dialect for a model."""

import re

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.errors import ConfigurationError

_WITHOUT_TOOL_CALLS = re.compile(
    r"(?:^|[/:])(?:o1-(?:mini|preview)|deepseek-r1|gemma|codegemma|phi-?[23]|llama-?2|codellama|tinyllama"
    r"|vicuna|wizardlm|starcoder|solar|yi-|mixtral-8x7b|qwq|sonar|gpt-3\.5-turbo-instruct|chatgpt-4o)",
    re.IGNORECASE,
)
"""Families whose own interface has no tool calls, or loses them; everything else is asked natively."""


def pick(model: str, setting: str) -> Dialect:
    """The dialect that the setting names; `auto` goes by the model. Raises ConfigurationError for an unknown one."""
    match setting:
        case "native":
            return NativeDialect()
        case "xml":
            return XmlDialect()
        case "react":
            return ReactDialect()
        case "auto":
            return XmlDialect() if _WITHOUT_TOOL_CALLS.search(model) else NativeDialect()
        case _:
            raise ConfigurationError(
                f"The dialect {setting!r} is not available. Set THREADHAND_DIALECT to auto, native, xml or react."
            )
