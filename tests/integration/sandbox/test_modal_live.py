"""The smoke run for owners of an account, tried against the simulated Modal, which lacks the image's programs."""

import asyncio

import pytest

from scripts import live_modal
from tests.support.modal_stage import modal_stage


async def test_the_smoke_run_goes_through_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_modal, "CHECKS", (("echo here", "here"),))
    async with modal_stage() as stage:
        async with asyncio.timeout(300):
            await live_modal.run_smoke_test()
        assert stage.living == []
        assert stage.snapshots == []
    told = capsys.readouterr().out
    assert "the first snapshot is gone" in told
    assert "the file came back" in told
    assert "it leads inside" in told
    assert "the address needs its token" in told
