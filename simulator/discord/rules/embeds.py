"""What Discord refuses in embeds."""

from simulator.discord.json_reading import Json, as_list, object_of, objects_of, text_of
from simulator.discord.rest.errors import FormErrors, Path

_CHARACTERS_MAX = 6000


def check_embeds(errors: FormErrors, embeds: object) -> None:
    """At most 10, with 6,000 characters of text in all of them together."""
    path: Path = ("embeds",)
    items = as_list(embeds)
    if items is None:
        errors.add(path, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
        return
    errors.size(path, items, 10)
    characters = 0
    for index, embed in enumerate(objects_of({"embeds": items}, "embeds")):
        characters += _check(errors, (*path, index), embed)
    if characters > _CHARACTERS_MAX:
        message = f"Embed size exceeds maximum size of {_CHARACTERS_MAX}"
        errors.add(path, "MAX_EMBED_SIZE_EXCEEDED", message)


def _check(errors: FormErrors, path: Path, embed: Json) -> int:
    texts: list[tuple[tuple[str, ...], str, int]] = [
        (("title",), text_of(embed, "title"), 256),
        (("description",), text_of(embed, "description"), 4096),
        (("author", "name"), text_of(object_of(embed, "author"), "name"), 256),
        (("footer", "text"), text_of(object_of(embed, "footer"), "text"), 2048),
    ]
    fields = objects_of(embed, "fields")
    errors.size((*path, "fields"), fields, 25)
    for index, field in enumerate(fields):
        for name, maximum in (("name", 256), ("value", 1024)):
            if not field.get(name):
                errors.required((*path, "fields", index, name))
            texts.append((("fields", str(index), name), text_of(field, name), maximum))
    for where, text, maximum in texts:
        errors.length((*path, *where), text, maximum)
    return sum(len(text) for _, text, _ in texts)
