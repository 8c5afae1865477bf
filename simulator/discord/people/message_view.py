"""A message's text, embeds and components as what a page can draw."""

import re
from collections.abc import Callable

from simulator.discord.files import page_url
from simulator.discord.json_reading import Json, int_of, object_of, objects_of, text_of
from simulator.discord.rules.component_tree import named_attachment
from simulator.discord.rules.components import (
    BUTTON,
    CONTAINER,
    GALLERY,
    ROW,
    SECTION,
    SELECTS,
    SEPARATOR,
    TEXT,
    THUMBNAIL,
)
from simulator.discord.world import LOADING, SUPPRESS_EMBEDS, Message, World
from simulator.view import Button, Divider, Element, Markdown, Picture, Select, SelectOption

_MENTION = re.compile(r"<@!?(\d{1,20})>")
_PRIMARY, _SUCCESS, _DANGER, _LINK = 1, 3, 4, 5
_USER_SELECT = 5


def elements_of(world: World, message: Message) -> tuple[Element, ...]:
    found: list[Element] = []
    if message.flags & LOADING:
        found.append(Markdown(text=f"{world.bot.name} is thinking…", flavour="plain", size="small"))
    if message.content:
        found.append(_text(world, message.content))
    if message.poll is not None:
        found.append(Markdown(text=_poll(message.poll), flavour="discord"))
    if not message.flags & SUPPRESS_EMBEDS:
        for embed in message.embeds:
            found.extend(_embed(world, embed))
    for component in message.components:
        found.extend(_component(world, message, component))
    return tuple(found)


def _poll(poll: Json) -> str:
    results = object_of(poll, "results")
    counts = {int_of(one, "id"): int_of(one, "count") for one in objects_of(results, "answer_counts")}
    lines = [
        f"- {text_of(object_of(answer, 'poll_media'), 'text')}: {counts.get(int_of(answer, 'answer_id'), 0)}"
        for answer in objects_of(poll, "answers")
    ]
    return "\n".join([f"📊 **{text_of(object_of(poll, 'question'), 'text')}**", *lines])


def options_of(component: Json) -> tuple[SelectOption, ...]:
    return tuple(
        SelectOption(value=text_of(option, "value"), label=text_of(option, "label"))
        for option in objects_of(component, "options")
    )


def _text(world: World, text: str) -> Markdown:
    """Mentions are read by name."""

    def name(match: re.Match[str]) -> str:
        user = world.user(match.group(1))
        return match.group(0) if user is None else f"@{user.name}"

    return Markdown(text=_MENTION.sub(name, text), flavour="discord")


def _embed(world: World, embed: Json) -> list[Element]:
    found: list[Element] = [Divider()]
    if title := text_of(embed, "title"):
        found.append(Markdown(text=title, flavour="discord", size="header"))
    if description := text_of(embed, "description"):
        found.append(_text(world, description))
    found.extend(
        _text(world, f"**{text_of(field, 'name')}**\n{text_of(field, 'value')}")
        for field in objects_of(embed, "fields")
    )
    if image := text_of(object_of(embed, "image"), "url"):
        found.append(Picture(url=image, alt=text_of(embed, "title")))
    if footer := text_of(object_of(embed, "footer"), "text"):
        found.append(Markdown(text=footer, flavour="plain", size="small"))
    return found


def _component(world: World, message: Message, component: Json) -> list[Element]:
    kind = int_of(component, "type")
    if kind in SELECTS:
        return [_select(world, message, component)]
    draw = _DRAW.get(kind)
    return [] if draw is None else draw(world, message, component)


def _children(world: World, message: Message, component: Json) -> list[Element]:
    found: list[Element] = []
    for child in objects_of(component, "components"):
        found.extend(_component(world, message, child))
    return found


def _section(world: World, message: Message, section: Json) -> list[Element]:
    accessory = _component(world, message, object_of(section, "accessory"))
    return [*_children(world, message, section), *accessory]


def _container(world: World, message: Message, container: Json) -> list[Element]:
    """A frame is drawn as a line above and below what stands in it."""
    return [Divider(), *_children(world, message, container), Divider()]


def _display(world: World, message: Message, component: Json) -> list[Element]:
    return [_text(world, text_of(component, "content"))]


def _separator(world: World, message: Message, component: Json) -> list[Element]:
    return [] if component.get("divider") is False else [Divider()]


def _thumbnail(world: World, message: Message, component: Json) -> list[Element]:
    return [_picture(world, message, component)]


def _gallery(world: World, message: Message, component: Json) -> list[Element]:
    return [_picture(world, message, item) for item in objects_of(component, "items")]


def _picture(world: World, message: Message, holder: Json) -> Picture:
    url = text_of(object_of(holder, "media"), "url")
    named = {attachment.filename: attachment for attachment in message.attachments}
    attachment = named_attachment(url, named)
    alt = text_of(holder, "description")
    if attachment is None:
        return Picture(url=url, alt=alt)
    return Picture(url=page_url(world, attachment), alt=alt or attachment.filename)


def _button(world: World, message: Message, button: Json) -> list[Element]:
    style = int_of(button, "style")
    emoji = text_of(object_of(button, "emoji"), "name")
    label = f"{emoji} {text_of(button, 'label')}".strip()
    url = text_of(button, "url")
    is_disabled = button.get("disabled") is True
    control_id = text_of(button, "custom_id")
    if style == _LINK:
        found = Button(control_id="", label=label, style="link", url=url, is_disabled=is_disabled)
    elif style == _DANGER:
        found = Button(control_id=control_id, label=label, style="danger", is_disabled=is_disabled)
    elif style in (_PRIMARY, _SUCCESS):
        found = Button(control_id=control_id, label=label, style="primary", is_disabled=is_disabled)
    else:
        found = Button(control_id=control_id, label=label, is_disabled=is_disabled)
    return [found]


def _select(world: World, message: Message, select: Json) -> Select:
    options = options_of(select)
    if select.get("type") == _USER_SELECT:
        options = tuple(
            SelectOption(value=user.user_id, label=user.name)
            for user in world.everybody(world.channels[message.channel_id])
        )
    return Select(control_id=text_of(select, "custom_id"), placeholder=text_of(select, "placeholder"), options=options)


_DRAW: dict[int, Callable[[World, Message, Json], list[Element]]] = {
    ROW: _children,
    BUTTON: _button,
    SECTION: _section,
    TEXT: _display,
    THUMBNAIL: _thumbnail,
    GALLERY: _gallery,
    SEPARATOR: _separator,
    CONTAINER: _container,
}
