"""What is said about settings that cannot be read: one sentence each, with the remedy, and never a secret."""

import difflib
from collections.abc import Sequence

from pydantic_core import ErrorDetails


def unknown(name: str, prefix: str, variables: Sequence[str]) -> str:
    """For a variable that is no setting."""
    known = [variable.removeprefix(prefix) for variable in variables]
    nearest = difflib.get_close_matches(name.removeprefix(prefix).upper(), known, n=1)
    remedy = (
        f"did you mean {prefix}{nearest[0]}?"
        if nearest
        else "`threadhand doctor --settings` lists all names."
    )
    return f"{name} is not a setting; {remedy}"


def sentence(
    problem: ErrorDetails, name: str, *, is_secret: bool, examples: Sequence[object] = ()
) -> str:
    """For a value that does not fit the setting of that name, of which there may be examples."""
    reasons = {
        "int_parsing": "it must be a whole number",
        "float_parsing": "it must be a number",
        "bool_parsing": "it must be true or false",
    }
    context = problem.get("ctx", {})
    reason = reasons.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "literal_error":
        reason = f"it must be one of {str(context['expected']).replace(' or ', ', ')}"
    elif problem["type"] == "string_pattern_mismatch" and examples:
        reason = f"write it like {examples[0]}"
    reason = reason.replace("Input should be", "it must be")
    shown = "" if is_secret else f" ({str(problem['input'])[:80]!r})"
    return f"{name} has a bad value{shown}: {reason}."
