"""What holds for every test: properties are tried the same way each time, so that a failure comes back."""

from hypothesis import settings

settings.register_profile("threadhand", derandomize=True, deadline=None)
settings.load_profile("threadhand")
