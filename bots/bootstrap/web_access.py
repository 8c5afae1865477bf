"""Builds the clients of external web services, and the set of tools that work with them and the sandbox."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_network

from bots.settings import Settings
from bots.settings.validation import parse_endpoint
from core.agents.roster import Roster
from core.llm.litellm_client import LiteLLMClient
from core.tools.agent_editing import build_edit_agent, edit_agent
from core.tools.catalogue import build_tool_set, missing_services
from core.tools.tool import Requirement, ToolSet
from core.web_access.client import ServiceApi
from core.web_access.cloudflare import CloudflarePages
from core.web_access.forward_proxy import ForwardProxy, parse_forward_proxy
from core.web_access.guard import AddressGuard
from core.web_access.image_generation import UNPRICED_PICTURE_USD, ImageGenerator
from core.web_access.pages import Firecrawl, LocalReader
from core.web_access.providers import RapidApi
from core.web_access.search import KeylessSearch, Tavily
from core.web_access.services import WebServices

DRAWING_SECONDS = 300.0


def build_address_guard(settings: Settings, allowed: Sequence[str]) -> AddressGuard:
    """Builds the guard of connections that are made for a model. `allowed` are exempt endpoints, for tests."""
    refused = tuple(map(ip_network, settings.refused_addresses))
    return AddressGuard(frozenset(map(parse_endpoint, allowed)), refused, proxy=build_forward_proxy(settings))


def build_forward_proxy(settings: Settings) -> ForwardProxy | None:
    if not settings.web_proxy:
        return None
    password = settings.web_proxy_password.get_secret_value()
    return parse_forward_proxy(settings.web_proxy, settings.web_proxy_user, password)


def build_web_services(settings: Settings) -> WebServices:
    """Builds the web services that are configured or need no key."""
    guard = build_address_guard(settings, settings.fetch_allow)
    if key := settings.tavily_api_key.get_secret_value():
        search = Tavily(ServiceApi(name="Tavily", url=settings.tavily_api_url, headers=_bearer(key)))
    else:
        search = KeylessSearch(ServiceApi(name="The search", url=settings.search_url, seconds_max=30))
    pages = LocalReader(guard)
    if key := settings.firecrawl_api_key.get_secret_value():
        url, headers = settings.firecrawl_api_url, _bearer(key)
        pages = Firecrawl(
            ServiceApi(name="Firecrawl", url=url, headers=headers, seconds_max=90, bytes_max=20_000_000), guard
        )
    sites, account_id = None, settings.cloudflare_account_id
    if (key := settings.cloudflare_api_token.get_secret_value()) and account_id:
        api = ServiceApi(
            name="Cloudflare Pages",
            url=settings.cloudflare_api_url,
            headers=_bearer(key),
            seconds_max=120,
            key_remedy="the token needs the right to edit Cloudflare Pages in this account",
        )
        sites = CloudflarePages(api=api, account_id=account_id)
    key = settings.rapidapi_key.get_secret_value()
    return WebServices(
        guard=guard,
        search=search,
        pages=pages,
        image_generator=_build_image_generator(settings, guard),
        providers=RapidApi(key=key, url=settings.rapidapi_url) if key else None,
        sites=sites,
    )


def build_toolbox(web: WebServices, *, has_sandbox: bool, has_browser: bool, roster: Roster | None = None) -> ToolSet:
    """Returns the tools that work with the available web services, sandbox, browser and agents."""
    here: dict[Requirement, bool] = {"sandbox": has_sandbox, "browser": has_browser, "agents": roster is not None}
    missing: set[Requirement] = {name for name, is_there in here.items() if not is_there}
    box = build_tool_set(missing_services(web) | missing)
    return ToolSet({**box.tools, edit_agent.name: build_edit_agent(roster)}) if roster else box


def _build_image_generator(settings: Settings, guard: AddressGuard) -> ImageGenerator | None:
    """Builds the image generator, or returns None if no image model is set.

    Uses the image model's own key and URL, otherwise its provider's. THREADHAND_LLM_API_KEY is not used if
    THREADHAND_LLM_BASE_URL is set, because that key belongs to the custom endpoint."""
    if not settings.image_model:
        return None
    shared = "" if settings.llm_base_url else settings.llm_api_key.get_secret_value()
    source = LiteLLMClient(
        provider_keys={name: key.get_secret_value() for name, key in settings.provider_keys.items()},
        api_key=settings.image_api_key.get_secret_value() or shared,
        base_url=settings.image_api_url,
        silence_seconds=DRAWING_SECONDS,
    )
    # a configured price of 0 means that pictures are free, too, but any other price is for language models
    unpriced_usd = 0.0 if settings.price_input_per_million_usd == 0 else UNPRICED_PICTURE_USD
    return ImageGenerator(source, settings.image_model, guard, unpriced_usd)


def _bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}
