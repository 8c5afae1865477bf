"""The settings that control who may talk to the agent."""

from pydantic import BaseModel

from bots.settings.validation import Names


class AccessSettings(BaseModel):
    """Part of `bots.settings.Settings`. `*` in an allowlist admits everyone.

    A person is admitted if at least one list is set and every list that is set contains them or the place where they
    write; `allowed_users` and `allowed_roles` count as one list. Guests also need `allow_guests`, and members of
    other workspaces `allow_strangers`. `admins` are always admitted. Apps must be listed in `allowed_apps`, and write
    in an admitted place.
    """

    allowed_workspaces: Names = ()
    allowed_channels: Names = ()
    allowed_users: Names = ()
    allowed_roles: Names = ()
    allow_guests: bool = False
    allow_strangers: bool = False
    admins: Names = ()
    allowed_apps: Names = ()

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
