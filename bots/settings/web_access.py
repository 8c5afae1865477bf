"""The settings of external services: web search, web pages, data, pictures and website hosting."""

from pydantic import BaseModel, Field, SecretStr

from bots.settings.validation import NO_SECRET, Endpoints, Networks, ProxyUrl, ServiceUrl, WebUrl


class WebAccessSettings(BaseModel):
    """The settings of web search, page reading, data providers, images and publishing. A service that needs a key is
    off without it."""

    tavily_api_key: SecretStr = NO_SECRET
    tavily_api_url: ServiceUrl = "https://api.tavily.com"
    search_url: WebUrl = "https://html.duckduckgo.com/html"
    firecrawl_api_key: SecretStr = NO_SECRET
    firecrawl_api_url: ServiceUrl = "https://api.firecrawl.dev"
    rapidapi_key: SecretStr = NO_SECRET
    rapidapi_url: WebUrl = ""
    image_model: str = ""
    image_api_key: SecretStr = NO_SECRET
    image_api_url: ServiceUrl = ""
    cloudflare_api_token: SecretStr = NO_SECRET
    cloudflare_account_id: str = Field(default="", pattern="^[A-Za-z0-9_-]*$", examples=["0123456789abcdef"])
    cloudflare_api_url: ServiceUrl = "https://api.cloudflare.com/client/v4"
    web_proxy: ProxyUrl = ""
    web_proxy_user: str = ""
    web_proxy_password: SecretStr = NO_SECRET
    fetch_allow: Endpoints = ()
    refused_addresses: Networks = ()
    expose_domain: str = Field(default="", pattern=r"^([a-z0-9.-]+(:\d{1,5})?)?$", examples=["apps.example.org"])
