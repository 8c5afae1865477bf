"""The settings that control who may talk to the agent."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from bots.settings.validation import Names, require_each

ANYONE = r"\*"
WORKSPACE_ID = r"[TE][A-Z0-9]{1,20}"
CHANNEL_ID = r"[CDG][A-Z0-9]{1,20}"
USER_ID = r"[UW][A-Z0-9]{1,20}"
DISCORD_ID = r"\d{1,20}"


def is_channel_id(text: str) -> bool:
    return re.fullmatch(f"{CHANNEL_ID}|{DISCORD_ID}", text, re.ASCII) is not None


def _require_ids(*shapes: str, example: str) -> AfterValidator:
    """Returns a validator that rejects names. The platforms send only ids, so a name would never match anyone."""
    pattern = re.compile("|".join((*shapes, DISCORD_ID)), re.ASCII)
    ending = ", or * for all" if ANYONE in shapes else ""

    def check(text: str) -> None:
        if pattern.fullmatch(text) is None:
            raise ValueError(
                f"{text[:40]!r} is no id. Write ids such as {example} (Slack) or 123456789012345678"
                f" (Discord){ending}; without this line, `threadhand setup` finds ids by name"
            )

    return require_each(check)


_PERSON = rf"(?:(?:{WORKSPACE_ID}|{DISCORD_ID})/)?(?:{USER_ID}|{DISCORD_ID})"


class AccessSettings(BaseModel):
    """Part of `bots.settings.Settings`. `*` in an allowlist admits everyone.

    A person is admitted if at least one list is set and every list that is set contains them or the place where they
    write; `allowed_users` and `allowed_roles` count as one list. Guests also need `allow_guests`, and members of other
    workspaces `allow_strangers`. `admins` are always admitted. Apps must be listed in `allowed_apps`, and write in an
    admitted place."""

    allowed_workspaces: Annotated[Names, _require_ids(ANYONE, WORKSPACE_ID, example="T0123ABCD")] = ()
    allowed_channels: Annotated[Names, _require_ids(ANYONE, CHANNEL_ID, example="C0123ABCD")] = ()
    allowed_users: Annotated[Names, _require_ids(ANYONE, _PERSON, example="U0123ABCD")] = ()
    allowed_roles: Annotated[Names, _require_ids(ANYONE, r"S[A-Z0-9]{1,20}", example="S0123ABCD")] = ()
    allow_guests: bool = False
    allow_strangers: bool = False
    admins: Annotated[Names, _require_ids(_PERSON, example="U0123ABCD")] = ()
    allowed_apps: Annotated[Names, _require_ids(r"[AB][A-Z0-9]{1,20}", example="A0123ABCD")] = ()

    @property
    def no_access_warning(self) -> str:
        """A warning for the operator if the settings give no one access, otherwise an empty string."""
        lists = (self.allowed_workspaces, self.allowed_channels, self.allowed_users)
        if any((*lists, self.allowed_roles, self.admins)):
            return ""
        return (
            "No one may talk to the agent yet: set THREADHAND_ALLOWED_WORKSPACES, THREADHAND_ALLOWED_CHANNELS,"
            " THREADHAND_ALLOWED_USERS or THREADHAND_ALLOWED_ROLES to ids, separated by commas, or to * for all."
        )
