"""Checks what leads outside: web services and their keys, the image model, and the public address."""

from functools import partial
from urllib.parse import urlsplit

from pydantic import SecretStr
from yarl import URL

from bots.bootstrap.platforms import NO_PUBLIC_URL, has_remote_users
from bots.settings import Settings
from bots.setup.check_runner import Check, blocking_check
from bots.setup.findings import Finding, untested_finding
from bots.setup.model_checks import list_models
from bots.setup.service_checks import ServiceClient
from core.web_access.guard import is_loopback


def build_web_checks(client: ServiceClient, settings: Settings) -> list[Check]:
    """Returns the checks of the web services. Each service with a key has its own check."""
    image = partial(_check_image_model, client, settings)
    # services with a free call that shows whether a key is accepted
    verify = "user/tokens/verify"
    if settings.cloudflare_account_id:
        verify = f"accounts/{settings.cloudflare_account_id}/tokens/verify"
    calls = {
        "TAVILY_API_KEY": (settings.tavily_api_key, f"{settings.tavily_api_url}/usage"),
        "FIRECRAWL_API_KEY": (settings.firecrawl_api_key, f"{settings.firecrawl_api_url}/v1/team/credit-usage"),
        "CLOUDFLARE_API_TOKEN": (settings.cloudflare_api_token, f"{settings.cloudflare_api_url}/{verify}"),
    }
    return [
        blocking_check("outside", partial(describe_web_services, settings, is_offline=False)),
        *(
            Check("outside", partial(_check_web_key, client, name, key, url), urlsplit(url).netloc)
            for name, (key, url) in calls.items()
            if key
        ),
        *([Check("outside", image, settings.image_model)] if settings.image_model else ()),
        Check("public", partial(_check_public_url, client, settings), settings.public_url),
    ]


def describe_web_services(settings: Settings, *, is_offline: bool) -> tuple[Finding, ...]:
    """Returns findings about the web services that are used, and about those that are off. Leaves out services whose
    key is tested, because they have their own findings."""
    tavily, firecrawl = bool(settings.tavily_api_key), bool(settings.firecrawl_api_key)
    services = {
        "data providers": ("RAPIDAPI_KEY", bool(settings.rapidapi_key)),
        "drawing": ("IMAGE_MODEL", bool(settings.image_model)),
        "deployments": ("CLOUDFLARE_API_TOKEN", bool(settings.cloudflare_api_token)),
        "deployments to an account": ("CLOUDFLARE_ACCOUNT_ID", bool(settings.cloudflare_account_id)),
    }
    facts = [
        f"searches the web {'by Tavily' if tavily else 'without a key'}",
        f"reads pages {'by Firecrawl' if firecrawl else 'by itself'}",
    ]
    shown = [fact for fact, is_tried in zip(facts, (tavily, firecrawl), strict=True) if is_offline or not is_tried]
    off = [f"THREADHAND_{name} ({what})" for what, (name, is_set) in services.items() if not is_set]
    fact = f"{' and '.join(shown)}." if shown else "can do more."
    found: list[Finding] = []
    if off:
        found.append(Finding("note", "outside", fact, f"For more set {', '.join(off)}."))
    elif shown:
        found.append(Finding("ok", "outside", fact))
    if settings.rapidapi_key and not is_offline:
        fact = "the key of RapidAPI is not tried, because every call counts against its plan."
        found.append(Finding("note", "outside", fact, "Ask the agent for data of a provider."))
    return tuple(found)


async def _check_image_model(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    """Tests the key by requesting the list of models, which costs nothing. Draws nothing."""
    model, own = settings.image_model, settings.image_api_key
    changes: dict[str, object] = {"llm_base_url": settings.image_api_url}
    if own or settings.llm_base_url:
        changes["llm_api_key"] = own  # the key of another endpoint is not sent
    status, names = await list_models(client, model, settings.model_copy(update=changes))
    if status in {401, 403}:
        remedy = "Correct THREADHAND_IMAGE_API_KEY, or the key of the model's provider."
        return (Finding("fail", "outside", f"the key of the image model {model} is refused.", remedy),)
    listed = {name.rpartition("/")[2] for name in names}
    if names and model.rpartition("/")[2] not in listed:
        fact = f"the image model {model} is not in its provider's list of models."
        return (Finding("fail", "outside", fact, "Correct THREADHAND_IMAGE_MODEL."),)
    known = "its provider lists it" if names else "its provider does not list its models"
    fact = f"the image model {model} is not tried, because pictures cost money; {known}."
    return (Finding("ok" if names else "note", "outside", fact),)


async def _check_web_key(client: ServiceClient, name: str, key: SecretStr, url: str) -> tuple[Finding, ...]:
    host = urlsplit(url).hostname or url
    reply = await client.call("GET", url, f"Bearer {key.get_secret_value()}")
    if reply.status is None or reply.status >= 500:
        return (untested_finding("outside", host),)
    if reply.status in {400, 401, 403}:
        return (Finding("fail", "outside", f"{host} refuses the key.", f"Correct THREADHAND_{name}."),)
    if reply.status == 200:
        return (Finding("ok", "outside", f"{host} accepts the key."),)
    return (Finding("note", "outside", f"{host} does not tell whether it accepts the key."),)


async def _check_public_url(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    """Fetches the public address from this machine, which shows a wrong name, certificate or proxy."""
    is_private = not settings.public_url or is_loopback(URL(settings.public_url))
    if is_private and has_remote_users(settings):
        place = f"{settings.public_url} is an address of this machine only."
        return (Finding("note", "public", place if settings.public_url else "is not set.", NO_PUBLIC_URL),)
    if not settings.public_url:
        return ()
    reply = await client.call("GET", f"{settings.public_url}/healthz")
    if reply.status == 200 and reply.text("status") == "ok":
        return (Finding("ok", "public", f"{settings.public_url} leads to Threadhand."),)
    if reply.status in {None, 502, 503, 504}:
        fact = f"{settings.public_url} does not answer."
        remedy = "If Threadhand is up, check the name, the certificate and the proxy in front of it."
        return (Finding("note", "public", fact, remedy),)
    fact = f"{settings.public_url}/healthz answers with status {reply.status}, and is not Threadhand."
    remedy = "Correct THREADHAND_PUBLIC_URL, or lead the proxy to THREADHAND_HTTP_PORT."
    return (Finding("fail", "public", fact, remedy),)
