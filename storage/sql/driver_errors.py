"""A driver's exception in one line for the operator."""

from sqlalchemy.exc import DBAPIError

_DATA_EXCEPTION = "22"


def describe_driver_error(error: Exception) -> str:
    """One line without statements or values, which may hold what people wrote."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    state = getattr(cause, "sqlstate", None)
    if isinstance(state, str) and state.startswith(_DATA_EXCEPTION):
        # PostgreSQL and its driver quote the value
        return f"the database cannot take a value (SQLSTATE {state})"
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
