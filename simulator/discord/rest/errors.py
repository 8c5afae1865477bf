"""The errors that Discord answers with, in its own JSON shape."""

from dataclasses import dataclass, field
from typing import cast

from simulator.discord.json_reading import Json

Path = tuple[str | int, ...]

# HTTP status, JSON code, message; the codes are those of Discord's table of JSON error codes.
UNAUTHORIZED = (401, 0, "401: Unauthorized")
NOT_FOUND = (404, 0, "404: Not Found")
METHOD_NOT_ALLOWED = (405, 0, "405: Method Not Allowed")
BROKEN_JSON = (400, 50109, "The request body contains invalid JSON.")
UNKNOWN_APPLICATION = (404, 10002, "Unknown Application")
UNKNOWN_CHANNEL = (404, 10003, "Unknown Channel")
UNKNOWN_GUILD = (404, 10004, "Unknown Guild")
UNKNOWN_MEMBER = (404, 10007, "Unknown Member")
UNKNOWN_MESSAGE = (404, 10008, "Unknown Message")
UNKNOWN_USER = (404, 10013, "Unknown User")
UNKNOWN_EMOJI = (400, 10014, "Unknown Emoji")
UNKNOWN_WEBHOOK = (404, 10015, "Unknown Webhook")
UNKNOWN_INTERACTION = (404, 10062, "Unknown interaction")
UNKNOWN_COMMAND = (404, 10063, "Unknown application command")
TOO_MANY_COMMANDS = (400, 30032, "Maximum number of application commands reached (100)")
TOO_MANY_REACTIONS = (400, 30010, "Maximum number of reactions reached (20)")
TOO_LARGE = (413, 40005, "Request entity too large")
ALREADY_ANSWERED = (400, 40060, "Interaction has already been acknowledged.")
MISSING_ACCESS = (403, 50001, "Missing Access")
NOT_YOURS = (403, 50005, "Cannot edit a message authored by another user")
EMPTY_MESSAGE = (400, 50006, "Cannot send an empty message")
CANNOT_MESSAGE_USER = (403, 50007, "Cannot send messages to this user")
MISSING_PERMISSIONS = (403, 50013, "Missing Permissions")
SYSTEM_MESSAGE = (403, 50021, "Cannot execute action on a system message")
NOT_FOR_TEXT = (400, 50008, "Cannot send messages in a non-text channel")
WRONG_CHANNEL_TYPE = (400, 50024, "Cannot execute action on this channel type")
INVALID_WEBHOOK_TOKEN = (401, 50027, "Invalid Webhook Token")
ARCHIVED = (400, 50083, "Thread is archived")
LOCKED = (400, 160005, "Thread is locked")
HAS_THREAD = (400, 160004, "A thread has already been created for this message")
TOO_MANY_THREADS = (400, 160006, "Maximum number of active threads reached")

Refusal = tuple[int, int, str]


class Refused(Exception):
    """Ends a call with an error answer."""

    def __init__(self, refusal: Refusal, errors: Json | None = None) -> None:
        self.status, self.code, self.message = refusal
        self.errors = errors
        super().__init__(f"{self.status} {self.code} {self.message}")

    def body(self) -> Json:
        body: Json = {"message": self.message, "code": self.code}
        if self.errors is not None:
            body["errors"] = self.errors
        return body


@dataclass(slots=True)
class FormErrors:
    """Collects what is wrong with the fields of a body; all of it is told at once (code 50035)."""

    tree: Json = field(default_factory=dict[str, object])

    def add(self, path: Path, code: str, message: str) -> None:
        node = self.tree
        for part in path:
            node = cast(Json, node.setdefault(str(part), {}))
        cast(list[Json], node.setdefault("_errors", [])).append({"code": code, "message": message})

    def raise_if_any(self) -> None:
        if self.tree:
            raise Refused((400, 50035, "Invalid Form Body"), self.tree)

    def required(self, path: Path) -> None:
        self.add(path, "BASE_TYPE_REQUIRED", "This field is required")

    def length(self, path: Path, value: object, maximum: int, minimum: int = 0) -> bool:
        """Checks a string by its length; answers whether it may be read further."""
        if not isinstance(value, str):
            self.add(path, "STRING_TYPE_CONVERT", "Could not interpret the value as string.")
            return False
        return self._is_within(path, len(value), maximum, minimum)

    def size(self, path: Path, value: object, maximum: int, minimum: int = 0) -> bool:
        """The same for a list and the number of its items."""
        if not isinstance(value, list):
            self.add(path, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
            return False
        return self._is_within(path, len(cast(list[object], value)), maximum, minimum)

    def _is_within(self, path: Path, size: int, maximum: int, minimum: int) -> bool:
        if minimum <= size <= maximum:
            return True
        if minimum:
            message = f"Must be between {minimum} and {maximum} in length."
            self.add(path, "BASE_TYPE_BAD_LENGTH", message)
        else:
            message = f"Must be {maximum} or fewer in length."
            self.add(path, "BASE_TYPE_MAX_LENGTH", message)
        return False

    def choice(self, path: Path, value: object, choices: tuple[object, ...]) -> bool:
        if value in choices and not isinstance(value, bool):
            return True
        listed = ", ".join(str(choice) for choice in choices)
        self.add(path, "BASE_TYPE_CHOICES", f"Value must be one of ({listed}).")
        return False

    def number(self, path: Path, value: object, minimum: int, maximum: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            self.add(path, "NUMBER_TYPE_COERCE", f'Value "{value}" is not int.')
        elif value < minimum:
            message = f"int value should be greater than or equal to {minimum}."
            self.add(path, "NUMBER_TYPE_MIN", message)
        elif value > maximum:
            message = f"int value should be less than or equal to {maximum}."
            self.add(path, "NUMBER_TYPE_MAX", message)


def invalid(path: Path, code: str, message: str) -> Refused:
    """One wrong field."""
    errors = FormErrors()
    errors.add(path, code, message)
    return Refused((400, 50035, "Invalid Form Body"), errors.tree)
