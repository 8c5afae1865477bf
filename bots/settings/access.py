"""The settings of who may talk to the agent."""

from pydantic import BaseModel

from bots.settings.validation import Names


class AccessSettings(BaseModel):
    """Part of `bots.settings.Settings`. Allowlists: empty admits nobody, `*` admits all; a person is admitted when at
    least one list is set and each that is set holds the place or person, where `allowed_users` and `allowed_roles` are
    one list. Guests, and members of other workspaces, need their switch besides. `admins` are always admitted.
    """

    allowed_workspaces: Names = ()
    allowed_channels: Names = ()
    allowed_users: Names = ()
    allowed_roles: Names = ()
    allow_guests: bool = False
    allow_strangers: bool = False
    admins: Names = ()

    @property
    def allow_notice(self) -> str:
        """What to tell the operator at the start when nobody may talk to the agent yet; empty if somebody may."""
        lists = (self.allowed_workspaces, self.allowed_channels, self.allowed_users)
        if any((*lists, self.allowed_roles, self.admins)):
            return ""
        return (
            "Nobody may talk to the agent yet: set THREADHAND_ALLOWED_WORKSPACES, THREADHAND_ALLOWED_CHANNELS,"
            " THREADHAND_ALLOWED_USERS or THREADHAND_ALLOWED_ROLES to ids, separated by commas, or to * for all."
        )
