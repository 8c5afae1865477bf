"""assistant.threads.* and agents.sessions.*: what the app is doing, and the names of its threads."""

from simulator.slack.events.payloads import Payload, Refused, as_payloads, as_texts
from simulator.slack.sessions import AgentSession
from simulator.slack.web_api.call import Call, Method, invalid_argument
from simulator.slack.world import Channel

_STATUSES = ("active", "processing", "suspended", "closed")
_TITLE_MAX = 200
_PROMPTS_MAX = 4
_LOADING_MAX = 10


def _thread(call: Call) -> tuple[Channel, str]:
    channel = call.joined_channel("channel_id")
    root = channel.messages.get(call.text("thread_ts"))
    if root is None or root.is_reply:
        raise Refused("thread_not_found")
    return channel, root.ts


def set_status(call: Call) -> Payload:
    channel, thread_ts = _thread(call)
    loading = call.arguments.get("loading_messages")
    if loading is not None and not 1 <= len(as_texts(loading)) <= _LOADING_MAX:
        raise invalid_argument(f"1 to {_LOADING_MAX} items allowed [json-pointer:/loading_messages]")
    status = call.text("status")
    if status:
        channel.statuses[thread_ts] = status
    else:
        channel.statuses.pop(thread_ts, None)
    call.workspace.changed()
    return {}


def set_title(call: Call) -> Payload:
    channel, thread_ts = _thread(call)
    key = channel.channel_id, thread_ts
    session = call.workspace.sessions.setdefault(key, AgentSession(status="active"))
    session.title = call.text("title")
    call.workspace.changed()
    return {}


def set_prompts(call: Call) -> Payload:
    if call.text("thread_ts"):
        _thread(call)
    else:
        call.joined_channel("channel_id")
    prompts = as_payloads(call.arguments.get("prompts"))
    if not 1 <= len(prompts) <= _PROMPTS_MAX:
        raise invalid_argument(f"1 to {_PROMPTS_MAX} items allowed [json-pointer:/prompts]")
    for index, prompt in enumerate(prompts):
        for key in ("title", "message"):
            if not prompt.get(key):
                raise invalid_argument(f"missing required field: {key} [json-pointer:/prompts/{index}]")
    return {}


def set_session_status(call: Call) -> Payload:
    _check_agent(call)
    channel, thread_ts = _thread(call)
    status, title = call.text("status"), call.text("title")
    if status not in _STATUSES:
        raise invalid_argument(f"must be one of: {', '.join(_STATUSES)} [json-pointer:/status]")
    if len(title) > _TITLE_MAX:
        raise invalid_argument(f"must be less than {_TITLE_MAX + 1} characters [json-pointer:/title]")
    key = channel.channel_id, thread_ts
    session = call.workspace.sessions.setdefault(key, AgentSession(status=status))
    session.status = status
    session.title = title or session.title
    session.initiator_id = call.text("initiator_user_id") or session.initiator_id
    if status == "processing":
        channel.statuses.setdefault(thread_ts, "is working…")
    else:
        channel.statuses.pop(thread_ts, None)
    call.workspace.changed()
    if "agent_session_stopped" in call.workspace.settings.subscriptions:
        return {}
    warning = "missing_agent_session_stopped_event_subscription"
    return {"warning": warning, "response_metadata": {"warnings": [warning]}}


def rename_session(call: Call) -> Payload:
    _check_agent(call)
    channel, thread_ts = _thread(call)
    session = call.workspace.sessions.get((channel.channel_id, thread_ts))
    if session is None:
        raise Refused("session_not_found")
    title = call.text("title")
    if len(title) > _TITLE_MAX:
        raise invalid_argument(f"must be less than {_TITLE_MAX + 1} characters [json-pointer:/title]")
    session.title = title
    call.workspace.changed()
    return {}


def _check_agent(call: Call) -> None:
    if not call.workspace.settings.is_agent:
        raise Refused("not_authorized")


_WRITES = ("assistant:write", "chat:write")
METHODS = {
    "agents.sessions.rename": Method(
        run=rename_session, tier="t3", scopes=_WRITES, required=("channel_id", "thread_ts", "title")
    ),
    "agents.sessions.setStatus": Method(
        run=set_session_status, tier="t3", scopes=_WRITES, required=("channel_id", "thread_ts", "status")
    ),
    "assistant.threads.setStatus": Method(
        run=set_status, tier="special", scopes=_WRITES, required=("channel_id", "thread_ts")
    ),
    "assistant.threads.setSuggestedPrompts": Method(
        run=set_prompts, tier="t4", scopes=("assistant:write",), required=("channel_id", "prompts")
    ),
    "assistant.threads.setTitle": Method(
        run=set_title, tier="t4", scopes=("assistant:write",), required=("channel_id", "thread_ts", "title")
    ),
}
