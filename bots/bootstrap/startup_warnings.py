"""What an operator should know at the start."""

from yarl import URL

from bots.settings import Settings
from core.web_access.loopback import is_loopback

NO_LINKS = (
    "This worker makes no links to files, previews and browsers: set THREADHAND_PUBLIC_URL to where people reach"
    " the bot's HTTP server."
)
UNSHARED = (
    "Links are signed with the secret of this data folder and open only where it is shared: set THREADHAND_LINK_SECRET"
    " to the same text for every process."
)
OPEN_BEHIND_A_PROXY = (
    "What leads people to THREADHAND_PUBLIC_URL may hide who asks: set THREADHAND_API_TOKEN, or let the proxy pass"
    " nothing on that begins with /api/ or /metrics."
)


def remarks(settings: Settings) -> list[str]:
    """Settings that leave the program without people, or open to too many."""
    is_live = settings.slack_mode != "off" or bool(settings.discord_token.get_secret_value())
    told = [
        settings.allow_notice
        if is_live
        else "Neither Slack nor Discord is set up: only the HTTP API serves."
    ]
    return [one for one in (*told, _proxy_remark(settings), _secret_remark(settings)) if one]


def worker_remarks(settings: Settings) -> list[str]:
    """The same for a process that only works."""
    no_links = "" if settings.public_url else NO_LINKS
    return [one for one in (no_links, _secret_remark(settings)) if one]


def _proxy_remark(settings: Settings) -> str:
    is_public = settings.public_url != "" and not is_loopback(URL(settings.public_url))
    return OPEN_BEHIND_A_PROXY if is_public and not settings.api_token.get_secret_value() else ""


def _secret_remark(settings: Settings) -> str:
    shares = settings.redis_url and not settings.link_secret.get_secret_value()
    return UNSHARED if shares else ""
