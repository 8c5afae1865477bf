"""The conversation of `threadhand setup`: questions in the terminal, keys recognised by shape, lists to pick from."""

import base64
import os
import re
import select
import shutil
import signal
import sys
import termios
import textwrap
import tty
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

WIDTH_MAX = 80
ROWS_SHOWN_MAX = 20
SHAPES: Mapping[str, str] = {
    "THREADHAND_SLACK_BOT_TOKEN": r"xoxb-[\w-]+",
    "THREADHAND_SLACK_APP_TOKEN": r"xapp-[\w-]+",
    "ANTHROPIC_API_KEY": r"sk-ant-[\w-]+",
    "OPENROUTER_API_KEY": r"sk-or-[\w-]+",
    "OPENAI_API_KEY": r"sk-(?:proj|svcacct)-[\w-]+",
    "GROQ_API_KEY": r"gsk_\w+",
    "GEMINI_API_KEY": r"AIza[\w-]{30,}",
    "XAI_API_KEY": r"xai-\w{20,}",
    "THREADHAND_TAVILY_API_KEY": r"tvly-[\w-]+",
    "THREADHAND_DISCORD_TOKEN": r"[MNO][\w-]{5,40}\.[\w-]{5,12}\.[\w-]{8,60}",
}
"""The shapes of keys and tokens, by the variable that each belongs to."""
_SHAPE = re.compile(
    r"(?<![\w.-])(?:" + "|".join(f"(?P<{name}>{shape})" for name, shape in SHAPES.items()) + r")(?![\w.-])", re.ASCII
)
PASTED_CHARACTERS_MAX = 10_000


class Dialog(Protocol):
    """Asks the user the questions of `threadhand setup` and shows messages."""

    def say(self, text: str) -> None: ...

    def ask(self, question: str, *, is_secret: bool = False) -> str:
        """Returns the answer without surrounding spaces. An empty answer skips the question.

        Raises EOFError at the end of the input, and if the user interrupts.
        """
        ...

    def copy(self, text: str) -> None:
        """Copies the text to the clipboard if the terminal can do that."""
        ...


class Terminal:
    """Asks the questions in the terminal, and shows a dot for each character of a secret."""

    def say(self, text: str) -> None:
        width = min(WIDTH_MAX, shutil.get_terminal_size().columns)
        for line in text.split("\n"):
            indent = " " * (len(line) - len(line.lstrip()))
            wrapped = textwrap.fill(
                line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
            sys.stdout.write(f"{wrapped}\n")
        sys.stdout.flush()

    def ask(self, question: str, *, is_secret: bool = False) -> str:
        *lines, last = question.split("\n")
        if lines:
            self.say("\n".join(lines))
        # the event loop would only note the signal, and the question would wait on
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        wakeup = signal.set_wakeup_fd(waker)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return (_read_secret if is_secret else _read_line)(f"{last}: ", woken).strip()
        except KeyboardInterrupt:
            raise EOFError from None
        finally:
            signal.signal(signal.SIGINT, before)
            signal.set_wakeup_fd(wakeup)
            os.close(woken)
            os.close(waker)

    def copy(self, text: str) -> None:
        """Uses the escape sequence OSC 52, which also reaches the clipboard of the machine before a remote shell."""
        if sys.stdout.isatty():
            sys.stdout.write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")


def _read_line(prompt: str, woken: int) -> str:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    if sys.stdin.isatty():
        # a Ctrl-C just before a read would leave the read waiting
        select.select([sys.stdin, woken], [], [])
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line


def _read_secret(prompt: str, woken: int) -> str:
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    typed = ""
    try:
        # the echo ends before the question, and what was pasted ahead is kept
        tty.setcbreak(descriptor, termios.TCSADRAIN)
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while True:
            select.select([descriptor, woken], [], [])
            key = os.read(descriptor, 1)
            if key in (b"\r", b"\n"):
                return typed
            if key in (b"\x04", b""):
                raise EOFError
            char = key.decode("ascii", "ignore")
            if char in ("\x7f", "\b"):
                sys.stdout.write("\b \b" if typed else "")
                typed = typed[:-1]
            elif char and char.isprintable():
                typed += char
                sys.stdout.write("•" if sys.stdout.encoding.lower() == "utf-8" else "*")
            sys.stdout.flush()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write("\n")


def recognise_keys(text: str) -> dict[str, str]:
    """Returns the keys and tokens in pasted text, by the variable that each belongs to."""
    found: dict[str, str] = {}
    for match in _SHAPE.finditer(text[:PASTED_CHARACTERS_MAX]):
        if match.lastgroup:
            found[match.lastgroup] = match[0]
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """A row to pick. `value` is what is stored."""

    value: str
    label: str


def pick(
    dialog: Dialog, question: str, choices: Sequence[Choice], *, id_shape: str = "", is_single: bool = False
) -> list[str] | None:
    """Shows the choices with numbers and returns the values of those picked, or None if the answer is empty.

    An answer names choices by number, by label, or by a part of a label that only one has. `id_shape` is a pattern of
    values that may be typed although they are not listed.
    """
    while True:
        rows = [f"  {n:>2}  {one.label}" for n, one in enumerate(choices[:ROWS_SHOWN_MAX], 1)]
        if len(choices) > ROWS_SHOWN_MAX:
            rows.append(f"      and {len(choices) - ROWS_SHOWN_MAX} more: type a part of the name")
        if rows:
            dialog.say("\n".join(rows))
        answer = dialog.ask(question)
        if not answer:
            return None
        picked: list[str] = []
        problem = ""
        for part in (piece.strip() for piece in ([answer] if is_single else answer.split(","))):
            value, problem = _resolve(part, choices, id_shape)
            if problem:
                break
            picked.append(value)
        if not problem:
            return list(dict.fromkeys(picked))
        dialog.say(problem)


def _resolve(text: str, choices: Sequence[Choice], id_shape: str) -> tuple[str, str]:
    """Returns the value that the text stands for, or a sentence that says why there is none."""
    if text.isdecimal() and 1 <= int(text) <= min(len(choices), ROWS_SHOWN_MAX):
        return choices[int(text) - 1].value, ""
    wanted = text.lstrip("#@").lower()
    exact = [one for one in choices if text == one.value or wanted == one.label.split(" (")[0].lstrip("#@").lower()]
    near = exact or [one for one in choices if wanted and wanted in one.label.lower()]
    if len(near) == 1:
        return near[0].value, ""
    if id_shape and re.fullmatch(id_shape, text, re.ASCII):
        return text, ""
    if near:
        shown = ", ".join(one.label for one in near[:ROWS_SHOWN_MAX])
        return "", f"{text} fits several: {shown}."
    expected = "neither in the list nor an id" if id_shape else "not in the list"
    return "", f"{text} is {expected}."
