"""What an operator should know at the start."""

from bots.settings import Settings


def remarks(settings: Settings) -> list[str]:
    """Settings that leave the program without people."""
    is_live = bool(
        settings.slack_bot_token.get_secret_value() or settings.discord_token.get_secret_value()
    )
    told = [
        settings.allow_notice
        if is_live
        else "Neither Slack nor Discord is set up: only the HTTP API serves."
    ]
    return [one for one in told if one]
