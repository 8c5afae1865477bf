"""What every request of the default agent costs, and the page that shows one."""

import pytest

from sandbox.installed import PACKAGES, PROGRAMS, describe_installed
from tests.bench.prompt import prefix_share, prompt_tokens, request_page, thread_requests, tokens
from tests.paths import REPOSITORY


@pytest.mark.parametrize(("has_browser", "tokens_max"), [(False, 4_100), (True, 5_600)])
@pytest.mark.parametrize("has_services", [False, True])
def test_the_prompt_and_the_tools_stay_small(tokens_max: int, *, has_browser: bool, has_services: bool) -> None:
    assert prompt_tokens(has_browser=has_browser, has_services=has_services) <= tokens_max


def test_what_is_installed_is_told_in_few_words() -> None:
    assert tokens(describe_installed((*PROGRAMS, *PACKAGES))) <= 60


async def test_fifty_turns_are_mostly_in_the_cache() -> None:
    assert prefix_share(await thread_requests(50)) >= 0.95


async def test_the_page_shows_what_a_fresh_thread_sends() -> None:
    page = (REPOSITORY / "docs" / "developers" / "request.md").read_text("utf-8")
    assert page == await request_page(), "write it anew: python -m tests.bench.prompt"
