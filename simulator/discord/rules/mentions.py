"""Who a message mentions, and whom it may ping (`allowed_mentions`)."""

import re

from simulator.discord.json_reading import Json, as_object, is_snowflake, list_of, text_of
from simulator.discord.rest.errors import FormErrors
from simulator.discord.rules.component_tree import walk
from simulator.discord.world import Message, User, World

_MENTION = re.compile(r"<@!?(\d{1,20})>")
_EVERYONE = re.compile(r"@(everyone|here)\b")
_NAMES = ("users", "roles")


def check_allowed_mentions(errors: FormErrors, body: Json) -> None:
    value = body.get("allowed_mentions")
    if value is None:
        return
    path, allowed = ("allowed_mentions",), as_object(value)
    if allowed is None:
        errors.add(path, "DICT_TYPE_CONVERT", "Only dictionaries may be used in a DictType")
        return
    parse = list_of(allowed, "parse")
    for index, item in enumerate(parse):
        errors.choice((*path, "parse", index), item, ("users", "roles", "everyone"))
    for name in _NAMES:
        listed = list_of(allowed, name)
        errors.size((*path, name), listed, 100)
        if listed and name in parse:
            message = f'parse:["{name}"] and {name}: [ids...] are mutually exclusive.'
            errors.add(path, "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", message)
        for index, item in enumerate(listed):
            if not is_snowflake(item):
                message = f'Value "{str(item)[:50]}" is not snowflake.'
                errors.add((*path, name, index), "NUMBER_TYPE_COERCE", message)


def apply_mentions(world: World, message: Message, allowed: object) -> None:
    """Fills in whom the message pings. A mention that is not allowed is text like any other."""
    texts = [message.content, *(text_of(item, "content") for item in walk(message.components))]
    text = "\n".join(texts)
    users = [world.user(user_id) for user_id in dict.fromkeys(_MENTION.findall(text))]
    rules = as_object(allowed)
    message.mentions = [user for user in users if user is not None and _may_ping(user, rules)]
    is_everyone = _EVERYONE.search(text) is not None
    message.is_everyone_mentioned = is_everyone and _may_ping_everyone(rules)
    answered = author_of_reference(world, message)
    if answered is not None and answered not in message.mentions:
        pings = True if rules is None else bool(rules.get("replied_user"))
        if pings:
            message.mentions.append(answered)


def _may_ping(user: User, rules: Json | None) -> bool:
    if rules is None or "users" in list_of(rules, "parse"):
        return True
    return user.user_id in map(str, list_of(rules, "users"))


def _may_ping_everyone(rules: Json | None) -> bool:
    return rules is None or "everyone" in list_of(rules, "parse")


def author_of_reference(world: World, message: Message) -> User | None:
    """Returns the author of the message that this one replies to, or None."""
    if message.reference is None or message.kind != 19:
        return None
    channel = world.channels.get(text_of(message.reference, "channel_id"))
    found = channel and channel.messages.get(text_of(message.reference, "message_id"))
    return found.author if found else None
