"""One call of the REST API, and its answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simulator.discord.files import Upload
from simulator.discord.json_reading import Json, as_object
from simulator.discord.rest.errors import invalid
from simulator.discord.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`path` has no `/api/v10`; `arguments` are the parts of it that the route leaves open."""

    method: str
    path: str
    arguments: Mapping[str, str]
    query: Mapping[str, str]
    body: object = None
    uploads: list[Upload] = field(default_factory=list[Upload])

    def fields(self) -> Json:
        """The body as an object; raises Refused where it is something else. No body is an empty one."""
        if self.body is None:
            return {}
        fields = as_object(self.body)
        if fields is None:
            message = "Only dictionaries may be used in a DictType"
            raise invalid((), "DICT_TYPE_CONVERT", message)
        return fields

    def number(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """A whole number of the query string, within its bounds."""
        text = self.query.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.removeprefix("-").isdigit():
            raise invalid((name,), "NUMBER_TYPE_COERCE", f'Value "{text[:50]}" is not int.')
        if int(text) < minimum:
            message = f"int value should be greater than or equal to {minimum}."
            raise invalid((name,), "NUMBER_TYPE_MIN", message)
        if int(text) > maximum:
            message = f"int value should be less than or equal to {maximum}."
            raise invalid((name,), "NUMBER_TYPE_MAX", message)
        return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`body` None means an empty answer, with status 204."""

    body: object = None
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A line of the access log. `arguments` is a short summary of the query and the body.

    `at` is `time.monotonic()` when the call arrived.
    """

    method: str
    path: str
    arguments: str
    status: int
    at: float


Act = Callable[[World, Call], Reply]
