"""A machine that lacks a server is told apart from a test that fails."""

import pytest

from tests.requirements_of_the_machine import REQUIRED_BY, lacking


def test_what_a_machine_lacks_is_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED_BY, raising=False)
    with pytest.raises(pytest.skip.Exception, match="NOT TESTED with redis: there is no wheel"):
        lacking("redis", "there is no wheel")


def test_what_a_machine_was_promised_to_have_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED_BY, "jail, redis")
    with pytest.raises(pytest.fail.Exception, match="redis is required"):
        lacking("redis", "there is no wheel")
    with pytest.raises(pytest.skip.Exception):
        lacking("postgres", "there is no wheel")
