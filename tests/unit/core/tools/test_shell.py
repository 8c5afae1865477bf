"""For how long execute_command waits before a command is a background job."""

import pytest

from core.tools.shell import ExecuteParams


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({}, 10), ({"blocking": True}, 60), ({"timeout": 0}, 0), ({"timeout": 300, "blocking": True}, 300)],
)
def test_a_command_is_waited_for_ten_seconds_unless_the_call_says_otherwise(
    given: dict[str, int], seconds: int
) -> None:
    params = ExecuteParams.model_validate({"command": "make", **given})
    assert params.wait_seconds == seconds
    told = ExecuteParams.model_json_schema()["properties"]
    assert "10 if not given" in told["timeout"]["description"]
    assert "60 seconds" in told["blocking"]["description"]
