"""What tools are called here: unique, short, and the same whatever the order."""

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from core.mcp.tool_names import tool_name_prefix, tool_names


def test_a_plain_name_stays() -> None:
    assert tool_names("git-hub", ["create_issue"]) == {"create_issue": "mcp_git-hub_create_issue"}


def test_signs_become_one_underline() -> None:
    assert tool_names("s", ["a  b..c/"]) == {"a  b..c/": "mcp_s_a_b_c"}


def test_the_tool_that_needed_no_change_keeps_the_name() -> None:
    names = tool_names("s", ["a.b", "a_b", "a b"])
    assert names["a_b"] == "mcp_s_a_b"
    assert len(set(names.values())) == 3
    assert all(re.fullmatch(r"mcp_s_a_b_[0-9a-f]{6}", names[tool]) for tool in ("a.b", "a b"))


def test_a_tool_named_like_one_of_ours_takes_nobodys_place() -> None:
    assert tool_names("s", ["ask"]) == {"ask": "mcp_s_ask"}


@given(
    tools=st.lists(st.text(max_size=100), unique=True, max_size=30),
    server=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", fullmatch=True),
    seed=st.randoms(use_true_random=False),
)
def test_any_names_are_fit_and_do_not_depend_on_the_order(tools: list[str], server: str, seed: random.Random) -> None:
    names = tool_names(server, tools)
    assert set(names) == set(tools)
    assert len(set(names.values())) == len(tools)
    for name in names.values():
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        assert name.startswith(tool_name_prefix(server))
    shuffled = [*tools]
    seed.shuffle(shuffled)
    assert tool_names(server, shuffled) == names
