"""Tests that a program killed while it deploys a site does not deploy again without a person's approval."""

import pytest

from tests.chaos.harness import Stage, staged
from tests.chaos.report_story import INTERRUPTED
from tests.fakes.cloudflare import ACCOUNT, TOKEN, Pages, cloudflare

PAGE = "<h1>Tides</h1>"
SCENARIO = f"""
conversations:
  - name: deploy
    when: {{user: {{contains: "web page"}}}}
    steps:
      - calls:
          - name: full_file_rewrite
            arguments: {{file_path: site/index.html, file_contents: "{PAGE}"}}
      - calls: [{{name: deploy, arguments: {{name: tides, directory_path: site}}}}]
      - calls: [{{name: deploy, arguments: {{name: tides, directory_path: site}}}}]
      - text: "It is on the web."
"""
APPROVE = "Approve once"


@pytest.mark.parametrize(("when", "deployed"), [("before", 0), ("after", 1)])
async def test_nothing_is_deployed_twice_without_a_new_approval(when: str, deployed: int) -> None:
    async with cloudflare() as pages, staged("slack", SCENARIO) as stage:
        stage.program.change(
            cloudflare_api_token=TOKEN, cloudflare_account_id=ACCOUNT, cloudflare_api_url=pages.standing.url
        )
        stage.program.start(failpoints=f"outside.request.{when}@publish:kill")
        await stage.connected()
        await stage.say("Make it a web page")
        await stage.until(lambda: stage.button(APPROVE), "it asks")
        first = asked_in(stage)
        await stage.press(APPROVE)
        assert await stage.program.ended(60) == -9
        assert (deployments(pages), pages.count) == (deployed, deployed)
        said = len(stage.script.requests)
        stage.program.start()
        await stage.until(lambda: asks(stage) == 2 and asked_in(stage) not in (None, first), "it asks anew", seconds=90)
        assert INTERRUPTED in str(stage.script.requests[said]["messages"])
        assert deployments(pages) == deployed
        await stage.press(APPROVE)
        await stage.until(lambda: stage.shows("It is on the web."), "it answers", seconds=90)
        await stage.settled(1)
        assert deployments(pages) == deployed + 1
        assert pages.sites["tides"]["/index.html"][0] == PAGE.encode()
        assert (stage.script.problems, stage.runs(), asks(stage)) == ([], ["completed"], 2)


def deployments(pages: Pages) -> int:
    """Returns the number of requests for a deployment."""
    return sum(one.path.endswith("/deployments") for one in pages.standing.asked)


def asked_in(stage: Stage) -> str | None:
    """Returns the id of the newest message with an approval button, or None."""
    found = stage.button(APPROVE)
    return found[0].message_id if found else None


def asks(stage: Stage) -> int:
    return len(stage.rows("SELECT ask_id FROM pending_ask"))
