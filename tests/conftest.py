"""What holds for every test: properties are tried the same way each time, so that a failure comes back."""

import os

from hypothesis import settings

settings.register_profile("threadhand", derandomize=True, deadline=None)
settings.load_profile("threadhand")


def pytest_xdist_auto_num_workers() -> int:
    """Three for two cores: programs that are waited for leave a third of a core's time to others."""
    return max(2, (os.cpu_count() or 2) * 3 // 2)
