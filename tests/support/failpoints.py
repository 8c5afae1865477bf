"""Failpoints of a test."""

from collections.abc import Generator
from contextlib import contextmanager

from core import failpoints


@contextmanager
def armed(places: str) -> Generator[None, None, None]:
    """Context manager: the failpoints are armed inside the block, as `failpoints.arm` reads them."""
    failpoints.arm(places)
    try:
        yield
    finally:
        failpoints.arm("")
