"""A driver's exception in one line for the operator."""

from sqlalchemy.exc import DBAPIError


def reason_of(error: Exception) -> str:
    """One line without statements or values, which may hold what people wrote."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
