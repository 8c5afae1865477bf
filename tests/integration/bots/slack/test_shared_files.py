"""Files that their messages name by id alone, and where files may be."""

import pytest
from yarl import URL

from bots.slack.web_api.downloads import is_slack_url
from simulator.slack import SlackSettings, SlackSimulator
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, attached, read, running


async def test_a_file_that_its_message_names_by_id_alone_comes_with_its_name(receiver: RecordingReceiver):
    async with SlackSimulator(settings=SlackSettings(is_shared=True)) as slack, running(slack, receiver) as app:
        file = await attached(slack, receiver, b"shared")
        assert (file.name, file.size_bytes) == ("a.bin", 6)
        assert await read(app, file) == b"shared"


async def test_a_file_that_slack_tells_nothing_of_is_known_by_its_id(receiver: RecordingReceiver):
    async with SlackSimulator(settings=SlackSettings(is_shared=True)) as slack, running(slack, receiver) as app:
        slack.misbehave("server_error", method="files.info", times=9)
        file = await attached(slack, receiver, b"shared")
        assert (file.name, file.size_bytes) == ("file", None)
        slack.misbehave("none")
        assert await read(app, file) == b"shared"


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("http://localhost:8080/x", True),
        ("http://127.0.0.1:8080/x", True),
        ("http://[::1]:8080/x", True),
        ("http://localhost:8081/x", False),
        ("https://localhost:8080/x", False),
        ("http://localhost.example.com:8080/x", False),
    ],
)
def test_a_stand_in_on_this_machine_may_call_it_by_another_name(url: str, is_own: bool):
    assert is_slack_url(URL(url), URL("http://127.0.0.1:8080/api/")) == is_own
