"""The doctor at the functions that execute runs: looked up at Modal, and told with how they are deployed."""

from pathlib import Path

import pytest
from grpclib import Status

from bots.setup.doctor import run_checks
from bots.setup.findings import Finding
from tests.integration.bots.test_modal_queue import APP, POSTGRESQL, REDIS, deployed
from tests.support.settings import no_settings as no_settings

WHOLE = {**POSTGRESQL, **REDIS, "SANDBOX": "none", "MODAL_WORKER_APP": APP}


async def found(folder: Path, **changes: str) -> list[Finding]:
    lines = {"DATA_DIR": str(folder), "HTTP_PORT": "0", **WHOLE, **changes}
    env_file = folder / ".env"
    env_file.write_text("\n".join(f"THREADHAND_{name}={text}" for name, text in lines.items()))
    return [one for one in await run_checks(env_file) if one.subject == "functions"]


async def test_a_token_that_modal_refuses_is_told_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deployed("execute_run"):
        monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-hidden-0815")
        (finding,) = await found(tmp_path)
    assert finding.state == "fail"
    assert "MODAL_TOKEN_ID" in finding.fact
    assert "as-hidden-0815" not in str(finding)


async def test_a_function_that_is_deployed_is_found_and_not_called(tmp_path: Path) -> None:
    async with deployed("execute_run") as stage:
        (finding,) = await found(tmp_path)
        assert str(finding) == f"ok    functions the app {APP} at Modal takes runs."
        assert stage.modal.world.function_calls.made == []


async def test_a_modal_that_does_not_answer_is_told(tmp_path: Path) -> None:
    async with deployed("execute_run") as stage:
        stage.modal.faults.arm("FunctionGet", Status.RESOURCE_EXHAUSTED, "not now")
        (finding,) = await found(tmp_path)
    assert (finding.state, "a limit of the Modal workspace" in finding.fact) == ("fail", True)
