"""The settings of services outside."""

import pytest

from bots.bootstrap.web_access import build_web_services
from bots.settings import load_settings, settings_secrets
from core.domain.errors import ConfigurationError

PLAIN = {"THREADHAND_DATA_DIR": "/nowhere"}


def test_places_that_may_be_fetched_from_are_addresses_with_ports() -> None:
    allowed = {"THREADHAND_FETCH_ALLOW": "127.0.0.1:8080, [::1]:9000"}
    guard = build_web_services(load_settings({**PLAIN, **allowed}, None)).guard
    assert guard.allowed == {("127.0.0.1", 8080), ("::1", 9000)}
    assert build_web_services(load_settings(PLAIN, None)).guard.allowed == frozenset()


@pytest.mark.parametrize("text", ["localhost:80", "127.0.0.1", "127.0.0.1:", "10.0.0.0/8:80", "*"])
def test_a_place_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_FETCH_ALLOW"):
        load_settings({**PLAIN, "THREADHAND_FETCH_ALLOW": text}, None)


@pytest.mark.parametrize("text", ["https://apps.example.org", "apps.example.org/x", "a b", "x:y"])
def test_a_domain_for_ports_is_a_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_EXPOSE_DOMAIN"):
        load_settings({**PLAIN, "THREADHAND_EXPOSE_DOMAIN": text}, None)


def test_every_key_is_a_secret() -> None:
    names = ("TAVILY_API_KEY", "FIRECRAWL_API_KEY", "RAPIDAPI_KEY", "IMAGE_API_KEY", "CLOUDFLARE_API_TOKEN")
    settings = load_settings({**PLAIN, **{f"THREADHAND_{name}": f"secret-{name}" for name in names}}, None)
    assert {f"secret-{name}" for name in names} <= set(settings_secrets(settings))
    shown = repr(settings) + repr(build_web_services(settings))
    assert "secret-" not in shown
