"""Which addresses are Slack's own: the only ones that ever see the bot's token or its files."""

from yarl import URL

from core.web_access.loopback import is_loopback

_DOMAINS = ("slack.com", "slack-files.com")


def is_slacks(url: URL, api_url: URL) -> bool:
    """Whether the address is Slack's over TLS, or the very server that the API is configured to be on. This machine has
    several names (localhost, 127.0.0.1), and a stand-in on it may use any."""
    if not url.host or url.user or url.password:
        return False
    if url.origin() == api_url.origin():
        return True
    if is_loopback(url) and is_loopback(api_url):
        return (url.scheme, url.port) == (api_url.scheme, api_url.port)
    is_domain = any(url.host == name or url.host.endswith(f".{name}") for name in _DOMAINS)
    return is_domain and url.scheme == "https" and url.port == 443
