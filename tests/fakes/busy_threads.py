"""Keeps the threads busy that asyncio shares among all callers of `to_thread`."""

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def busy_threads() -> Generator[None]:
    has_ended = threading.Event()
    shared = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(shared)
    shared.submit(has_ended.wait)
    try:
        yield
    finally:
        has_ended.set()
