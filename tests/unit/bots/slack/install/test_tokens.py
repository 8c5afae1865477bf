"""Tokens at rest, and the state of an installation."""

import pytest
from cryptography.fernet import Fernet

from bots.slack.install.oauth import BotToken
from bots.slack.install.routes import sign_state, verify_state
from bots.slack.install.tokens import TokenCipher, UnreadableToken
from core.domain.errors import ConfigurationError

OLD, NEW, OTHER = (Fernet.generate_key().decode() for _ in range(3))
TOKEN = BotToken(access_token="xoxb-1", refresh_token="xoxe-1", expires_at=5.0)
SECRET = b"secret"


def test_a_token_is_not_readable_without_its_key() -> None:
    sealed = TokenCipher([OLD]).seal("T1", TOKEN)
    assert "xoxb" not in sealed
    assert TokenCipher([OLD]).unseal("T1", sealed) == TOKEN
    with pytest.raises(UnreadableToken):
        TokenCipher([OTHER]).unseal("T1", sealed)


def test_a_token_of_one_workspace_is_none_of_another() -> None:
    sealed = TokenCipher([OLD]).seal("T1", TOKEN)
    with pytest.raises(UnreadableToken):
        TokenCipher([OLD]).unseal("T2", sealed)


def test_an_older_key_still_reads_and_the_newest_one_seals() -> None:
    sealed = TokenCipher([OLD]).seal("T1", TOKEN)
    both = TokenCipher([NEW, OLD])
    assert both.unseal("T1", sealed) == TOKEN
    renewed = both.reseal_with_newest_key(sealed)
    assert renewed is not None
    assert both.reseal_with_newest_key(renewed) is None
    assert TokenCipher([NEW]).unseal("T1", renewed) == TOKEN


@pytest.mark.parametrize("keys", [[], ["short"], [OLD, "short"]])
def test_a_key_that_is_none_is_told(keys: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_ENCRYPTION_KEYS"):
        TokenCipher(keys)


def test_a_state_holds_in_its_browser_until_its_time() -> None:
    state = sign_state(SECRET, "nonce", "browser", expires_at=100)
    assert verify_state(SECRET, state, "browser", now=99) == "nonce"
    assert verify_state(SECRET, state, "browser", now=100) is None
    assert verify_state(SECRET, state, "other", now=99) is None
    assert verify_state(SECRET, state, "", now=99) is None
    assert verify_state(b"other", state, "browser", now=99) is None


@pytest.mark.parametrize("state", ["", ".", "..", "a.b.c", "x" * 5000, "nonce.9999999999."])
def test_a_forged_state_is_none(state: str) -> None:
    assert verify_state(SECRET, state, "browser", now=1) is None


def test_a_state_with_another_time_is_none() -> None:
    nonce, _, signature = sign_state(SECRET, "n", "b", expires_at=100).split(".")
    assert verify_state(SECRET, f"{nonce}.999999.{signature}", "b", now=1) is None
