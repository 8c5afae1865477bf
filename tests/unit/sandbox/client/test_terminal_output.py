"""A terminal's output as text: what is overwritten or erased is gone, and hostile output costs linear time."""

import time

import pytest

from sandbox.client.terminal_output import render_terminal


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain\n\ttext é漢", "plain\n\ttext é漢"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b(Bplain", "red plain"),
        ("a\x1bPq#0;2~\x1b\\b\x1b_Gf=100;AAAA\x1b\\c", "abc"),
        ("a\0b\x01\x7fc", "abc"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("a\rb\r\nc", "b\nc"),
        ("".join(f"\r{n} %" for n in range(101)) + "\ndone\n", "100 %\ndone\n"),
        ("long line\rshort", "shortline"),
        ("long line\r\x1b[Kshort", "short"),
        ("long line\x1b[2K\rshort", "short"),
        ("x\x1b[3Cy\x1b[2Dz\x1b[1Gw", "w  zy"),
        ("N\bNA\bAM\bME\bE", "NAME"),
        ("\b\b\bx", "x"),
        ("1: 0 %\n2: 0 %\n\x1b[2A\x1b[2K1: 9 %\n\x1b[2K2: 8 %\n", "1: 9 %\n2: 8 %\n"),
        ("a\nb\nc\x1b[2F!\x1b[2E.", "!\nb\n."),
        ("gone\ngone\x1b[H\x1b[2Jnew", "new"),
        ("kept\ngone\ngone\x1b[2;1H\x1b[Jnew", "kept\nnew"),
        ("a\x1b[2;3Hb", "a\n  b"),
        ("a\x1b[", "a["),
        ("$ less\n\x1b[?1049h\x1b[Hpage 1\npage 2\x1b[?1049l\x1b[?1lafter", "$ less\nafter"),
        ("$ vim\n\x1b[?1049h~\n~", "~\n~"),
        ("a\x1b[?25lb\x1b[>4;2mc", "abc"),
        ("".join(f"{n}\n" for n in range(100)) + "\x1b[999AX", "".join(f"{n}\n" for n in range(51)) + "X1\n"
         + "".join(f"{n}\n" for n in range(52, 100))),
    ],
)  # fmt: skip
def test_what_a_terminal_shows_at_the_end(printed: str, shown: str) -> None:
    assert render_terminal(printed) == shown


@pytest.mark.parametrize(
    "piece",
    [
        "\x1b[A",
        "x\x1b[A\n",
        "\x1b[999999999999B",
        "\x1b[99999999999999999999999999Cx",
        "\x1b[2K\x1b[9999Cx",
        "\x1b[2Jx",
        "\n\x1b[999Cx",
        "\x1b[B\x1b[999Cx",
        "\x1b[9999;9999Hx",
        "\x1b[J\x1b[50B",
        "\r\b",
        "\x1b]",
        "\x1bP",
        "\x1b[1;",
        "\x1b",
    ],
)
def test_hostile_output_is_rendered_in_linear_time(piece: str) -> None:
    start = "x" * 100_000 + "\x1b[2Kx\n"
    begun = time.process_time()
    shown = render_terminal(start + piece * (400_000 // len(piece)))
    assert time.process_time() - begun < 30
    assert len(shown) < 12_000_000


def test_a_long_number_is_not_read_whole() -> None:
    assert render_terminal("\ra\x1b[" + "9" * 300_000 + "Cb").endswith("b")
