"""Checks the signatures of calls to hooks and parses their bodies. Pure functions over headers and bodies.

Accepts the signatures of Standard Webhooks (with a timestamp), GitHub, GitLab and Sentry, and bearer tokens. The
content of a body is untrusted, even if the body is signed."""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qs

from pydantic import JsonValue

from core.domain.json import JsonObject
from core.domain.outside_text import single_line
from core.domain.schedules import BODY_CHARACTERS_MAX

SECRET_PREFIX = "whsec_"  # noqa: S105 - the mark of a secret, as Standard Webhooks defines it
TIMESTAMP_SECONDS_MAX = 300
TITLE_CHARACTERS_MAX = 200
PATH_DEPTH_MAX = 20
REPEAT_SECONDS = 600.0
"""Within this time, an equal body without an id of its own counts as a redelivery."""
_ID_HEADERS = ("webhook-id", "x-github-delivery", "x-gitlab-event-uuid", "request-id")
_TITLE_FIELDS = ("title", "subject", "summary", "message", "text", "name")


class MalformedHookBody(ValueError):
    """Raised if the body cannot be parsed. The message is shown to the program that sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A parsed call of a hook.

    `key` identifies the call. If `is_named`, the sender chose the key; otherwise the key is a hash of the body. `group`
    identifies the incident that the call is about, or is "". `task` is the hook's task with values from the body filled
    in. `is_test` is true for a call that only tests whether the hook exists."""

    key: str
    is_named: bool
    task: str
    title: str
    group: str
    text: str
    is_test: bool = False


def new_hook_secret() -> str:
    """Returns a random secret of a hook in the format of Standard Webhooks. It can be used in a URL."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_hex(24).encode()).decode()


def is_authentic(secret: str, headers: Mapping[str, str], body: bytes, *, url_secret: str, now: float) -> bool:
    """Whether the sender knows the secret: it is in the URL (`given`), or a header proves it. Names of headers are in
    lower case."""
    if not secret.startswith(SECRET_PREFIX):
        return False
    return _is_same(url_secret, secret) or any(
        _is_same(given, right) for given, right in _proofs(secret, headers, body, now)
    )


def _proofs(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Iterator[tuple[str, str]]:
    """Yields the given and the expected value for each kind of signature that the headers contain."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip(), secret
    if given := headers.get("x-gitlab-token"):
        yield given, secret
    for name, prefix in (("x-hub-signature-256", "sha256="), ("sentry-hook-signature", "")):
        if given := headers.get(name):
            yield given, prefix + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    sent_at = headers.get("webhook-timestamp", "")
    if (
        sent_at.isascii()
        and sent_at.isdecimal()
        and len(sent_at) < 12
        and abs(int(sent_at) - now) <= TIMESTAMP_SECONDS_MAX
    ):
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
        signed = f"{headers.get('webhook-id', '')}.{sent_at}.".encode() + body
        right = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for given in headers.get("webhook-signature", "").split(" ")[:10]:
            yield given, right


def _is_same(given: str, right: str) -> bool:
    return hmac.compare_digest(_encoded(given), _encoded(right))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def parse_hook_call(headers: Mapping[str, str], body: bytes, *, task: str, group_path: str) -> HookCall:
    """Parses a call of the hook with this task. Raises MalformedHookBody if the body cannot be parsed.

    `group_path` is the path of the field that identifies the incident, such as `alert.id`. If it is "", the fields that
    well-known senders use are tried."""
    content = _parse(headers.get("content-type", ""), body)
    title, group = _describe(headers, content)
    if group_path:
        group = _text(_at(content, group_path))
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1)
    if (surplus := len(text) - BODY_CHARACTERS_MAX) > 0:
        text = f"{text[:BODY_CHARACTERS_MAX]}\n[{surplus:,} more characters are left out]"
    given_id = next(filter(None, (headers.get(name, "") for name in _ID_HEADERS)), "")
    return HookCall(
        key=hashlib.sha256(_encoded(given_id) or body).hexdigest(),
        is_named=given_id != "",
        task=fill_template(task, content),
        title=single_line(title, TITLE_CHARACTERS_MAX) or "A call without a title",
        group=hashlib.sha256(_encoded(group)).hexdigest() if group else "",
        text=text,
        is_test=headers.get("x-github-event") == "ping",
    )


def fill_template(template: str, content: JsonValue) -> str:
    """Returns the task with each `{field.of.the.body}` replaced by its value. Fields that do not exist are left as they
    are."""
    parts = template.split("{")
    filled = [parts[0]]
    for part in parts[1:]:
        path, closed, rest = part.partition("}")
        value = _text(_at(content, path)) if closed else ""
        filled.append(f"“{single_line(value, TITLE_CHARACTERS_MAX)}”{rest}" if value else "{" + part)
    return "".join(filled)


def _parse(content_type: str, body: bytes) -> JsonValue:
    text = body.decode("utf-8", "replace")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":  # used by one of GitHub's two formats, and by chat webhooks
        try:
            text = parse_qs(text, max_num_fields=10).get("payload", [""])[0]
        except ValueError:
            raise MalformedHookBody("The form has too many fields.") from None
    elif kind == "text/plain":
        return text
    try:
        return cast(JsonValue, json.loads(text))
    except (ValueError, RecursionError):
        raise MalformedHookBody("The body is not valid JSON.") from None


def _describe(headers: Mapping[str, str], content: JsonValue) -> tuple[str, str]:
    """Returns the title, and what identifies the incident if the sender is a known one."""

    def at(path: str) -> str:
        return _text(_at(content, path))

    if event := headers.get("x-github-event"):
        kind = next((one for one in ("pull_request", "issue", "release", "workflow_run") if at(one)), "")
        title = at(f"{kind}.title") or at(f"{kind}.name") or at("head_commit.message")
        # a repository numbers issues and pull requests together, and an event about a comment on either has an issue
        number = at(f"{kind}.number") or (f"{kind} {at(f'{kind}.id')}" if kind else "")
        what = " ".join(filter(None, (at("repository.full_name"), event.replace("_", " "), at("action"))))
        return f"{what}: {title}" if title else what, f"{at('repository.full_name')} {number}" if number else ""
    if headers.get("x-gitlab-event"):
        what = " ".join(
            filter(None, (at("project.path_with_namespace"), at("object_kind"), at("object_attributes.action")))
        )
        kind = next((one for one in ("merge_request", "issue") if at(f"{one}.iid")), at("object_kind"))
        number = at(f"{kind}.iid") or at("object_attributes.iid")
        title = at("object_attributes.title") or at(f"{kind}.title")
        group = f"{at('project.id')} {kind} {number}" if number else ""
        return f"{what}: {title}" if title else what, group
    if headers.get("sentry-hook-resource"):
        kind = next((one for one in ("data.issue", "data.event", "data.error") if at(one)), "data")
        return at(f"{kind}.title") or "Sentry", at(f"{kind}.issue_id") or at(f"{kind}.id")
    if at("groupKey") and isinstance(_at(content, "alerts"), list):
        return f"{at('status')}: {at('commonLabels.alertname') or at('groupLabels.alertname')}", at("groupKey")
    title = next((value for name in _TITLE_FIELDS if (value := at(name))), "")
    return title or (content if isinstance(content, str) else at("attachments.0.fallback")), ""


def _at(content: JsonValue, path: str) -> JsonValue:
    """Returns the value at a path such as `alerts.0.labels.name`, or None."""
    value = content
    for name in path.split(".", PATH_DEPTH_MAX):
        if isinstance(value, list):
            is_index = name.isascii() and name.isdecimal() and len(name) < 7
            value = value[int(name)] if is_index and int(name) < len(value) else None
        elif isinstance(value, dict):
            value = cast(JsonObject, value).get(name)
        else:
            return None
    return value


def _text(value: JsonValue) -> str:
    if value is None or value in ("", [], {}):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:TITLE_CHARACTERS_MAX]
