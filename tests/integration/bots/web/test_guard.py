"""Who may call the API, and how it refuses."""

from pathlib import Path

import pytest

from bots.web.auth import check_exposure
from core.domain.errors import ConfigurationError, StorageUnavailable
from core.domain.ids import new_id
from tests.support.web_stage import Stage, staged

ANYWHERE = "0.0.0.0"  # noqa: S104 - it is what must be refused
PATH = f"/api/thread/{new_id()}"


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer ", "Basic right", "right", "Bearer right2", "Bearer rïght"]
)
async def test_a_missing_or_wrong_token_is_refused(tmp_path: Path, header: str | None) -> None:
    async with staged(tmp_path, api_token="right") as stage:
        headers = {} if header is None else {"Authorization": header}
        for path in (PATH, "/metrics", "/api/nowhere"):
            answer = await stage.json("GET", path, headers=headers, status=401)
            assert answer["error"] == "unauthorized"


async def test_the_right_token_is_let_in_from_anywhere(tmp_path: Path) -> None:
    async with staged(tmp_path, api_token="right") as stage:
        headers = {"Authorization": "bearer right", "Host": "agent.example"}
        answer = await stage.json("GET", PATH, headers=headers, status=404)
        assert answer["error"] == "thread_not_found"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_without_a_token_no_web_page_gets_in(stage: Stage, headers: dict[str, str]) -> None:
    answer = await stage.json("POST", "/api/thread", headers=headers, status=403)
    assert answer["error"] == "forbidden"


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
async def test_without_a_token_nobody_gets_in_through_a_proxy(stage: Stage, header: str) -> None:
    """A proxy on this machine asks in its own name, and may call us 127.0.0.1 as nginx does."""
    for method, path in (("POST", "/api/thread"), ("GET", "/metrics")):
        answer = await stage.json(method, path, headers={header: "192.0.2.7"}, status=403)
        assert answer["error"] == "forbidden"


@pytest.mark.parametrize("host", ["localhost:8700", "127.0.0.1", "[::1]:8700"])
async def test_without_a_token_this_machine_gets_in(stage: Stage, host: str) -> None:
    await stage.json("POST", "/api/thread", headers={"Host": host}, status=201)


@pytest.mark.parametrize("host", [ANYWHERE, "::", "192.0.2.1", "agent.example", ""])
def test_a_public_address_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_API_TOKEN"):
        check_exposure(host, "")
    check_exposure(host, "token")


class LostConversations:
    async def find(self, _: object) -> None:
        raise StorageUnavailable("gone")

    async def snapshot(self, _: object) -> None:
        raise StorageUnavailable("gone")


async def test_a_lost_database_is_told(tmp_path: Path) -> None:
    async with staged(tmp_path, conversations=LostConversations()) as stage:
        assert await stage.json("GET", "/healthz") == {"status": "ok"}
        unready = await stage.json("GET", "/readyz", status=503)
        assert unready["error"] == "not_ready"
        assert unready["message"] == "Not ready: database."
        assert unready["parts"] == {"database": "It does not answer."}
        assert (await stage.json("GET", PATH, status=503))["error"] == "storage_unavailable"
