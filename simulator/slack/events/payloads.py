"""JSON as it travels between Slack and an app, and how Slack refuses."""

from typing import Any, cast

# Block Kit and event payloads are open-ended JSON whose shape each reader checks where it reads.
Payload = dict[str, Any]


class Refused(Exception):
    """A Web API call that Slack answers with `{"ok": false, "error": code}`.

    `messages` are the entries of `response_metadata.messages`; `details` are further fields of the answer.
    """

    def __init__(self, code: str, *, messages: tuple[str, ...] = (), **details: object) -> None:
        super().__init__(code)
        self.code = code
        self.messages = messages
        self.details = details

    def answer(self) -> Payload:
        """The body of the refusal."""
        body: Payload = {"ok": False, "error": self.code, **self.details}
        if self.messages:
            body["errors"] = [message.removeprefix("[ERROR] ") for message in self.messages]
            body["response_metadata"] = {"messages": list(self.messages)}
        return body


class NotAcknowledged(Exception):
    """The app did not take a delivery; the reason is one of Slack's retry reasons."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def as_payload(value: object) -> Payload | None:
    """The value where it is a JSON object."""
    return cast(Payload, value) if isinstance(value, dict) else None


def as_payloads(value: object) -> list[Payload]:
    """The JSON objects of a JSON array; nothing where it is none."""
    if not isinstance(value, list):
        return []
    return [cast(Payload, item) for item in cast(list[object], value) if isinstance(item, dict)]


def as_texts(value: object) -> list[str]:
    """The strings of a JSON array; nothing where it is none."""
    if not isinstance(value, list):
        return []
    return [item for item in cast(list[object], value) if isinstance(item, str)]
