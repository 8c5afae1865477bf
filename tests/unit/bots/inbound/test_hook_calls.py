"""What programs send to a hook: who may call it, and what is read of the body."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.inbound.hook_calls import HookCall, MalformedHookBody, is_authentic, new_hook_secret, parse_hook_call

SECRET = "whsec_N2VmOWFiNTc0OWQ5NzA5YjcyNzdiNWE1N2NmMmNkY2NiY2QxNzI2ZjQxNWY4OGYy"
BODY = b'{"title": "Disk full"}'
NOW = 1_800_000_000.0
JSON = {"content-type": "application/json"}


def hexadecimal(key: bytes = SECRET.encode(), body: bytes = BODY) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()


def standard(sent_at: float = NOW, *, secret: str = SECRET, call_id: str = "msg_1") -> dict[str, str]:
    """The headers that Standard Webhooks defines."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{call_id}.{sent_at:.0f}.".encode() + BODY, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {
        "webhook-id": call_id,
        "webhook-timestamp": f"{sent_at:.0f}",
        "webhook-signature": f"v1a,AAAA v1,AAAA {signature}",
    }


OTHER = "whsec_Y2M0MzI1MjI4MDBiNWVkNjk0ZGU3N2ZkNTE3NjM4ZmQ3MmY0MmQ3Zjc3ODExNGZh"


@pytest.mark.parametrize(
    ("headers", "given", "is_right"),
    [
        ({}, SECRET, True),
        ({}, OTHER, False),  # the hook was removed and made again
        ({}, "", False),
        ({}, "ü\ud800", False),
        ({"authorization": f"Bearer {SECRET}"}, "", True),
        ({"authorization": f"Basic {SECRET}"}, "", False),
        ({"authorization": "Bearer"}, "", False),
        ({"x-gitlab-token": SECRET}, "", True),
        ({"x-gitlab-token": OTHER}, "", False),
        ({"x-hub-signature-256": f"sha256={hexadecimal()}"}, "", True),
        ({"x-hub-signature-256": hexadecimal()}, "", False),
        ({"x-hub-signature-256": f"sha256={hexadecimal(body=b'{}')}"}, "", False),
        ({"x-hub-signature": f"sha1={hexadecimal()}"}, "", False),  # SHA-1 is not taken
        ({"sentry-hook-signature": hexadecimal()}, "", True),
        ({"sentry-hook-signature": hexadecimal(OTHER.encode())}, "", False),
        (standard(), "", True),
        (standard(NOW - 299), "", True),
        (standard(NOW - 301), "", False),  # replayed
        (standard(NOW + 301), "", False),
        (standard(secret=OTHER), "", False),
        ({**standard(), "webhook-id": "msg_2"}, "", False),
        ({**standard(), "webhook-timestamp": "1e9"}, "", False),
        ({**standard(), "webhook-timestamp": "٣"}, "", False),
    ],
)
def test_only_who_knows_the_secret_calls(headers: dict[str, str], given: str, is_right: bool) -> None:
    assert is_authentic(SECRET, headers, BODY, url_secret=given, now=NOW) is is_right


def test_a_secret_fits_into_an_address_and_is_the_hooks_own() -> None:
    assert new_hook_secret().removeprefix("whsec_").isalnum()
    assert SECRET != OTHER


@pytest.mark.parametrize("secret", ["", "short"])
def test_nobody_knows_a_secret_that_is_none(secret: str) -> None:
    assert not is_authentic(secret, {"authorization": f"Bearer {secret}"}, BODY, url_secret=secret, now=NOW)


def call(content: Any, *, task: str = "Look", group_path: str = "", **headers: str) -> HookCall:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return parse_hook_call(JSON | named, json.dumps(content).encode(), task=task, group_path=group_path)


GITHUB = {"action": "opened", "repository": {"full_name": "acme/site"}, "issue": {"number": 7, "title": "It breaks"}}
PUSH = {"repository": {"full_name": "acme/site"}, "head_commit": {"message": "fix: it\n\nBody"}}
GITLAB = {
    "object_kind": "merge_request",
    "project": {"id": 3, "path_with_namespace": "acme/site"},
    "object_attributes": {"iid": 5, "title": "Mend it", "action": "open"},
}
SENTRY = {"action": "created", "data": {"issue": {"id": "99", "title": "ZeroDivisionError"}}}
ALERT = {"groupKey": "{}:{a=b}", "status": "firing", "alerts": [{}], "commonLabels": {"alertname": "DiskFull"}}


@pytest.mark.parametrize(
    ("content", "headers", "title", "is_grouped"),
    [
        (GITHUB, {"x_github_event": "issues"}, "acme/site issues opened: It breaks", True),
        (PUSH, {"x_github_event": "push"}, "acme/site push: fix: it Body", False),
        (GITLAB, {"x_gitlab_event": "Merge Request Hook"}, "acme/site merge_request open: Mend it", True),
        (SENTRY, {"sentry_hook_resource": "issue"}, "ZeroDivisionError", True),
        (ALERT, {}, "firing: DiskFull", True),
        ({"text": "Deployed *v2*"}, {}, "Deployed *v2*", False),  # what chats take
        ({"attachments": [{"fallback": "Build 7 failed"}]}, {}, "Build 7 failed", False),
        ({"title": "Disk\u2028full", "text": "no"}, {}, "Disk full", False),
        ("Backup done", {}, "Backup done", False),
        ({}, {}, "A call without a title", False),
        ([], {}, "A call without a title", False),
        (None, {}, "A call without a title", False),
        ({"title": 7}, {}, "7", False),
        ({"groupKey": "x", "alerts": "no list"}, {}, "A call without a title", False),
    ],
)
def test_known_senders_have_a_title_and_one_thread_per_incident(
    content: Any, headers: dict[str, str], title: str, is_grouped: bool
) -> None:
    found = call(content, **headers)
    assert (found.title, found.group != "") == (title, is_grouped)


def test_a_field_of_the_body_names_the_thread() -> None:
    groups = [
        call({"alert": {"ids": ["a", "b"]}}, group_path=path).group
        for path in ("alert.ids.0", "alert.ids.1", "alert.ids.2", "alert.ids.x", "alert.ids.0000001", "none", "")
    ]
    assert groups[0] != groups[1]
    assert set(groups[2:]) == {""}


def test_the_same_delivery_has_one_key() -> None:
    first, second = call("a", x_github_delivery="1"), call("b", x_github_delivery="1")
    assert first.key == second.key != call("a", x_github_delivery="2").key
    assert first.is_named
    assert call("a").key == call("a").key != call("b").key
    assert not call("a").is_named, "a program may say the same every day"


ISSUE = {"number": 7, "title": "It breaks"}
PULL = {"action": "created", "repository": {"full_name": "acme/site"}, "issue": {**ISSUE, "pull_request": {}}}
NOTE = {"object_kind": "note", "project": {"id": 3}, "object_attributes": {"note": "Hm"}, "merge_request": {"iid": 5}}


def test_comments_go_to_the_thread_of_what_they_are_about() -> None:
    opened = {**GITHUB, "issue": None, "pull_request": ISSUE}
    assert call(opened, x_github_event="pull_request").group == call(PULL, x_github_event="issue_comment").group
    assert call(GITLAB, x_gitlab_event="Merge Request Hook").group == call(NOTE, x_gitlab_event="Note Hook").group


def test_a_form_has_its_body_in_a_field() -> None:
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    assert parse_hook_call(form, b"payload=%7B%22text%22%3A%22Hi%22%7D", task="Look", group_path="").title == "Hi"
    plain = parse_hook_call({"content-type": "text/plain"}, b"Disk full\nnow", task="Look", group_path="")
    assert (plain.title, plain.text) == ("Disk full now", "Disk full\nnow")


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"9" * 5_000, b"\xff"])
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedHookBody):
        parse_hook_call(JSON, body, task="Look", group_path="")


def test_a_long_body_is_cut_and_says_so() -> None:
    text = call({"title": "x", "log": "a" * 50_000}).text
    assert len(text) < 21_000
    assert text.endswith("more characters are left out]")


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("Look at {alert.name} ({alert.level})", "Look at “Disk full” (“3”)"),
        ("Look at {alert.none} and {", "Look at {alert.none} and {"),
        ("{alert.name", "{alert.name"),
        ("{{alert.name}}", "{“Disk full”}"),
    ],
)
def test_a_task_names_fields_of_the_body(template: str, filled: str) -> None:
    content = {"alert": {"name": "Disk\nfull", "level": 3}, "log": "a" * 50_000}
    assert call(content, task=template).task == filled


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "issue", "alerts", "a.b", "title"]), inner)
    ),
    max_leaves=8,
)


@given(
    VALUES, st.sampled_from(["x-github-event", "x-gitlab-event", "sentry-hook-resource", "none"]), st.text(max_size=9)
)
def test_whatever_is_sent_can_be_read(content: Any, header: str, path: str) -> None:
    body = json.dumps(content).encode()
    parse_hook_call(JSON | {header: "issues"}, body, task=f"{{{path}}} {{title}}", group_path=path)
