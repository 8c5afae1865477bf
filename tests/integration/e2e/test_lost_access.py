"""Slack takes the app's token or a scope away while a run works."""

from dataclasses import replace

import pytest

from tests.chaos.harness import Stage, staged
from tests.integration.e2e.test_refusals import CROSS, SCENARIO, TICK, beside, released, signs, slack_of, working


async def refused(stage: Stage, code: str) -> None:
    """The run ends while Slack refuses its answer, which the operator can read in the log."""
    await released(stage)
    await stage.settled(1)
    assert stage.runs() == ["completed"]
    assert signs(stage) != TICK["slack"]
    assert f"was refused: {code}" in stage.program.log()
    assert "error bots.delivery.outbox found no place to say that the messages" in (stage.program.log())


async def answered_by_the_stale_button(stage: Stage) -> None:
    """Its status could not be edited either: it still says that the run works, and has a Stop button."""
    await stage.press("Stop")
    await stage.until(lambda: stage.shows("This is the answer."), "the answer is posted")
    await stage.until(lambda: signs(stage) == TICK["slack"], "it is done")
    assert stage.button("Stop") is None
    is_open = "SELECT is_open FROM rendering"
    await stage.until(lambda: stage.rows(is_open) == [(0,)], "nothing is left to deliver")
    assert len(stage.script.requests) == 2


@pytest.mark.parametrize("code", ["token_revoked", "account_inactive"])
async def test_an_answer_is_kept_until_the_token_works_again(code: str) -> None:
    async with staged("slack", SCENARIO) as stage:
        await working(stage)
        slack = slack_of(stage)
        slack.misbehave("refuse", method="*", code=code, times=10_000)
        await refused(stage, code)
        stage.program.kill()
        slack.misbehave("none")
        stage.program.start()
        await stage.connected()
        await answered_by_the_stale_button(stage)


async def test_an_answer_is_kept_until_the_app_may_write_again() -> None:
    async with staged("slack", SCENARIO) as stage:
        await working(stage)
        slack = slack_of(stage)
        granted = slack.settings.scopes
        left = tuple(one for one in granted if one != "chat:write")
        slack.configure(replace(slack.settings, scopes=left))
        await refused(stage, "missing_scope")
        assert signs(stage) == CROSS["slack"]
        slack.configure(replace(slack.settings, scopes=granted))
        await answered_by_the_stale_button(stage)


async def test_the_run_of_an_app_that_is_removed_stops_and_the_log_says_so() -> None:
    async with staged("slack", SCENARIO) as stage:
        await working(stage)
        slack = slack_of(stage)
        slack.oauth.uninstall(slack.workspace.team_id)
        await stage.settled(1)
        assert stage.runs() == ["stopped"]
        told = f"the bot was uninstalled from {slack.workspace.team_id}; 1 runs stopped"
        assert told in stage.program.log()
        assert beside(stage) == []
