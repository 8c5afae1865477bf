"""Markdown rewritten for Discord."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from bots.delivery.markdown import truncate
from bots.discord.render.markdown import to_discord_markdown
from core.domain.outside_text import utf16_length


def test_a_table_becomes_aligned_text() -> None:
    table = "Here:\n\n| Name | Count |\n|---|---:|\n| apples | 3 |\n| **pears** | 12 |\n\nEnd."
    assert to_discord_markdown(table, length_max=2000) == snapshot(
        """\
Here:

```
Name    Count
──────  ─────
apples      3
pears      12
```

End.\
"""
    )


def test_a_wide_table_becomes_a_list() -> None:
    wide = "w" * 40
    table = f"| Key | Left | Right |\n|---|---|---|\n| a | {wide} | {wide} |"
    assert to_discord_markdown(table, length_max=2000) == f"- **a** · Left: {wide} · Right: {wide}"


def test_a_table_that_would_grow_too_long_stays_as_it_was_written() -> None:
    table = "| a | b |\n|--:|--:|\n" + "\n".join(f"| {n} | {'x' * (40 if n == 0 else 1)} |" for n in range(40))
    assert to_discord_markdown(table, length_max=len(table)) == table
    assert to_discord_markdown(table, length_max=len(table) + 8) == f"```\n{table}\n```"


def test_crowds_are_not_pinged() -> None:
    assert to_discord_markdown("@everyone and @here and <@&42>", length_max=2000) == (
        "@\u200deveryone and @\u200dhere and <@\u200d&42>"
    )


def test_code_is_left_as_it_is() -> None:
    code = "run `echo @everyone`\n```\n@here <@&1>\n```"
    assert to_discord_markdown(f"{code}\nand @here", length_max=2000) == f"{code}\nand @\u200dhere"


def test_what_discord_does_not_draw_is_written_otherwise() -> None:
    source = "#### Deep\n- [x] done\n- [ ] open\n![A chart](https://x.example/c.png)\n---"
    assert to_discord_markdown(source, length_max=2000) == snapshot(
        """\
**Deep**
- ☑ done
- ☐ open
[A chart](https://x.example/c.png)
⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯\
"""
    )


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("true if a || b, `a || b`", "true if a \\|\\| b, `a || b`"),
        ("__two words__ and a__b__c", "**two words** and a__b__c"),
        ("> a quotation\nthat goes on\n- an item", "> a quotation\n> that goes on\n- an item"),
        ("> one\n\ntwo", "> one\n\ntwo"),
    ],
)
def test_marks_that_mean_something_else_in_discord_are_written_otherwise(source: str, shown: str) -> None:
    assert to_discord_markdown(source, length_max=2000) == shown


@pytest.mark.parametrize("line", ["{}|x", "-{}|x", "|{}x|"])
def test_a_line_that_is_no_rule_of_a_table_is_known_at_once(line: str) -> None:
    text = "a|b\n" + line.format(" " * 200_000)
    assert to_discord_markdown(text, length_max=len(text)) == text


@given(st.text(max_size=500), st.integers(1, 300))
def test_clipping_keeps_to_the_limit(text: str, length_max: int) -> None:
    assert utf16_length(truncate(text, length_max)) <= max(length_max, 1)


def test_a_table_in_an_indented_fence_stays_as_it_is() -> None:
    source = "1. Run:\n\n    ```sql\n    | a | b |\n    |---|---|\n    @everyone\n    ```\n"
    assert to_discord_markdown(source, length_max=2000) == source.rstrip("\n")
