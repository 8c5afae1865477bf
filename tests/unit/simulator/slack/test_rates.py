"""Rate limits: bursts are allowed, more than the tier in the long run is not."""

from hypothesis import given
from hypothesis import strategies as st

from bots.demo.environment import DemoWorld
from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator
from simulator.slack.web_api.rate_limits import TIERS, Rates

STEPS = st.lists(st.floats(min_value=0, max_value=5), min_size=1, max_size=200)


@given(st.sampled_from(["t2", "t3", "t4"]), STEPS)
def test_no_more_than_a_burst_and_the_tier_gets_through(tier: str, steps: list[float]) -> None:
    rates, now, passed = Rates(), 0.0, 0
    for step in steps:
        now += step
        passed += rates.take("T1", "chat.update", tier, "C1", now) == 0
    assert passed <= TIERS[tier] * (1 + now / 60) + 1


@given(STEPS)
def test_waiting_as_long_as_told_is_enough(steps: list[float]) -> None:
    rates, now = Rates(), 0.0
    for step in steps:
        now += step
        wait = rates.take("T1", "chat.postMessage", "post", "C1", now)
        if wait:
            now += wait
            assert rates.take("T1", "chat.postMessage", "post", "C1", now) == 0


def test_the_limits_of_the_platforms_count_by_default() -> None:
    """Also in the demo: its stories take a minute, so they show whether a bot keeps to Slack's own numbers."""
    assert SlackSimulator().web_api.rates.scale == 1.0
    assert DiscordSimulator().settings.rate_limit_scale == 1.0
    assert DemoWorld().has_rate_limits
