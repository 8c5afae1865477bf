"""Which messages mean yes, no or stop, and which call the agent by its name."""

import pytest

from bots.inbound.commands.short_replies import calls_agent_by_name, read_yes_no_stop

YES = """
yes | Yes! | yes please | OK. | go ahead | ja | Klar! | oui | d’accord | sí | sim | はい。 | 好的
| 👍🏽 | :+1: | *approved*
"""
NO = "no | No. | don't | don’t do it | nein, danke | non merci | não | いいえ | 不行 | 👎 | :-1:"
STOP = """
stop | Stop! | STOP IT | please stop | stop, please | abbrechen | arrête | para | 止めて | 停下来
| 🛑 | :octagonal_sign:
"""
NEITHER = """
yes, but first back it up | no, let's do it | yes? | ok thanks, bye | yes and no | do it tomorrow | not yes |
yesterday | no problem, go on without me | that's the wrong file | stop the server | don't stop |
cancel it, the room is too small | stop it lol | nonstop | mute yourself please | fine | ~yes~ |
yes yes yes yes yes yes yes yes yes yes yes yes yes yes
"""


def phrases(text: str) -> list[str]:
    return [one.strip() for one in text.replace("\n", " ").split("|") if one.strip()]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        *((one, "yes") for one in phrases(YES)),
        *((one, "no") for one in phrases(NO)),
        *((one, "stop") for one in phrases(STOP)),
        *((one, None) for one in phrases(NEITHER)),
    ],
)
def test_a_word_is_the_whole_message(text: str, word: str | None) -> None:
    assert read_yes_no_stop(text) == word


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ("threadhand, what is the total?", True),
        ("Threadhand what is the total", True),
        ("hey threadhand, again please", True),
        ("@Threadhand: again", True),
        ("can you redo that, threadhand?", True),
        ("danke threadhand", True),
        ("threadhand", True),
        ("I think threadhand got the sums wrong", False),
        ("threadhands are nice", False),
        ("bob, ask threadhand about it", False),
        ("Will you also add the totals?", False),
        ("", False),
    ],
)
def test_the_name_calls_the_agent_at_the_beginning_and_at_the_end(text: str, *, is_call: bool) -> None:
    assert calls_agent_by_name(text, "Threadhand") is is_call
    assert not calls_agent_by_name(text, "")
