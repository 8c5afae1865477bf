"""Converts a program's output to the plain text that a terminal would show."""

import re

ROWS, COLUMNS = 50, 200
"""The cursor can be moved only within this many of the last lines, and only this far to the right."""
_TEXT = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]+")
_CODE = re.compile(
    r"\x1b(?:\[(?P<arguments>[0-?]*)[ -/]*(?P<final>[@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\-~])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_MOVES_CURSOR = re.compile(r"[\x08\r]|\x1b\[(?:[0-9;]*[A-HJKf]|\?(?:47|1047|1049)h)")
_SECOND_SCREEN = ("?47", "?1047", "?1049")
"""Editors and pagers switch to a second screen. When they end, the terminal shows the first screen again."""


def render_terminal(output: str) -> str:
    """Returns the output without colours and control characters, after everything that moves the cursor or erases text
    has taken effect. Lines are never wrapped. The work is linear in the output's length."""
    if not _CONTROL.search(output):
        return output
    output = output.replace("\r\n", "\n")
    if not _MOVES_CURSOR.search(output):
        return _CONTROL.sub("", _CODE.sub("", output))
    screen = _Screen()
    at = 0
    while at < len(output):
        if text := _TEXT.match(output, at):
            screen.write(text[0])
            at = text.end()
        elif code := _CODE.match(output, at):
            if code["arguments"] in _SECOND_SCREEN:
                screen.switch_to(is_second=code["final"] == "h")
            else:
                screen.follow_code(code["final"] or "", code["arguments"] or "")
            at = code.end()
        else:
            screen.follow_control(output[at])
            at += 1
    return "\n".join(map("".join, screen.lines))


def is_redrawn(output: str) -> bool:
    """Returns whether the output moves the cursor back or erases text."""
    return _CONTROL.search(output) is not None and _MOVES_CURSOR.search(output.replace("\r\n", "\n")) is not None


class _Screen:
    """`lines` are all lines so far, as lists of characters; the last of them are on the screen."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = [[]]
        self._row = self._column = 0
        self._first_screen: tuple[list[list[str]], int, int] | None = None

    def write(self, text: str) -> None:
        line = self.lines[self._row]
        if self._column > len(line):
            line.extend(" " * (self._column - len(line)))
        end = self._column + len(text)
        line[self._column : end] = text
        self._column = end

    def follow_control(self, control: str) -> None:
        match control:
            case "\n":
                self._column = 0
                self._move_to(self._row + 1)
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - 1)
            case _:
                pass

    def switch_to(self, *, is_second: bool) -> None:
        """Begins an empty second screen, or returns to the first."""
        if is_second and self._first_screen is None:
            self._first_screen = self.lines, self._row, self._column
            self.lines, self._row, self._column = [[]], 0, 0
        elif not is_second and self._first_screen is not None:
            (self.lines, self._row, self._column), self._first_screen = self._first_screen, None

    def follow_code(self, final: str, arguments: str) -> None:
        # a long number would take long to read
        numbers = [int(number[:4]) for number in arguments[:20].split(";") if number[:4].isdecimal()]
        first = numbers[0] if numbers else 0
        match final:
            case "A" | "F":
                self._move_to(max(self._top, self._row - max(1, first)))
            case "B" | "E":
                self._move_to(min(self._top + ROWS - 1, self._row + max(1, first)))
            case "C":
                self._column = max(self._column, min(COLUMNS, self._column + max(1, first)))
            case "D":
                self._column = max(0, self._column - max(1, first))
            case "G":
                self._column = min(COLUMNS, max(0, first - 1))
            case "H" | "f":
                self._move_to(self._top + min(max(1, first), ROWS) - 1)
                self._column = min(COLUMNS, max(0, numbers[1] - 1)) if len(numbers) > 1 else 0
            case "J" if first == 0:
                del self.lines[self._row + 1 :], self.lines[self._row][self._column :]
            case "J" if first == 2:
                row = self._row
                del self.lines[self._top :]
                self._move_to(row)
                self._column = min(COLUMNS, self._column)
            case "K" if first == 0:
                del self.lines[self._row][self._column :]
            case "K" if first == 2:
                self.lines[self._row].clear()
                self._column = min(COLUMNS, self._column)
            case _:
                pass
        if final in ("E", "F"):
            self._column = 0

    @property
    def _top(self) -> int:
        return max(0, len(self.lines) - ROWS)

    def _move_to(self, row: int) -> None:
        self.lines.extend([] for _ in range(row + 1 - len(self.lines)))
        self._row = row
