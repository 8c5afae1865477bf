"""Modal denies what it has, clocks differ, processes meet: no sandbox in use is ended, and no file is lost."""

from collections.abc import AsyncIterator

import grpclib
import modal.exception
import pytest
from grpclib import Status
from modal_proto import api_pb2

from sandbox.modal import snapshots
from sandbox.modal.account import ModalAccount, describe_sdk_error
from tests.integration.sandbox.modal_stage import Stage, modal_stage

MINUTE, HOUR = 60.0, 3600.0
RESULT = api_pb2.GenericResult
OUT_OF_MEMORY = RESULT(status=RESULT.GENERIC_STATUS_KERNEL_OOM_KILL, exitcode=137)


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(snapshots, "LOOKUP_PAUSE_SECONDS", 0.01)
    async with modal_stage() as made:
        yield made


@pytest.mark.parametrize(
    "error",
    [
        grpclib.GRPCError(Status.RESOURCE_EXHAUSTED, "workspace billing cycle spend limit reached"),
        modal.exception.InternalError("workspace billing cycle spend limit reached"),
        modal.exception.RemoteError("Workspace has reached its spend limit"),
    ],
)
def test_a_spend_limit_is_recognised_in_any_error(error: Exception) -> None:
    """Modal's users report it as a bare error of the transport."""
    public, hint = describe_sdk_error(error)
    assert "paused" in public
    assert "budget" in hint


def test_a_build_that_speaks_of_a_budget_is_a_build() -> None:
    error = modal.exception.ImageBuildError("pip: no budget-tracker found", "im-1")
    assert "build's log" in describe_sdk_error(error)[1]


@pytest.mark.parametrize(
    "name", ["TOKEN_SECRET", "OAUTH_REFRESH_TOKEN", "OAUTH_CLIENT_SECRET", "OAUTH_JWT_KEY"]
)
def test_whatever_opens_the_account_is_kept_out_of_logs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"MODAL_{name}", "of-a-test")
    assert "of-a-test" in ModalAccount("app").secrets
