"""An organisation of several simulated workspaces, in which people and the bot have one id each."""

from dataclasses import dataclass, field

from simulator.slack.events.payloads import Payload


@dataclass(slots=True, kw_only=True, eq=False)
class Organisation:
    """`token` is that of an installation for the whole organisation, empty without one; `reached` are the workspaces
    that the app was added to with it, and `alone` those that have installed the app for themselves.

    `places` names, by the id of a person, the workspaces that they are in, their own first.
    """

    organisation_id: str
    name: str
    token: str = ""
    team_ids: list[str] = field(default_factory=list[str])
    reached: set[str] = field(default_factory=set[str])
    alone: set[str] = field(default_factory=set[str])
    user_ids: dict[str, str] = field(default_factory=dict[str, str])
    places: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def enter(self, team_id: str, name: str, fresh_id: str) -> str:
        """Somebody is in a workspace from now on; their id."""
        user_id = self.user_ids.setdefault(name, fresh_id)
        self.places.setdefault(user_id, []).append(team_id)
        return user_id

    def serves(self, team_id: str) -> bool:
        """Whether the organisation's own installation hears of the workspace."""
        return self.token != "" and team_id in self.reached

    def hears(self, team_id: str) -> bool:
        """Whether the app hears of the workspace at all."""
        return self.serves(team_id) or team_id in self.alone

    def form(self) -> Payload:
        return {"id": self.organisation_id, "name": self.name}

    def standing(self, user_id: str) -> Payload:
        """What a `user` object says of a person's place in the organisation."""
        return {
            "id": user_id,
            "enterprise_id": self.organisation_id,
            "enterprise_name": self.name,
            "is_admin": False,
            "is_owner": False,
            "teams": list(self.places[user_id]),
        }
