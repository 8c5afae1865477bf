"""Findings of the doctor: what works, what does not, and how to fix it."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import typer

State = Literal["ok", "note", "fail"]
_COLORS: dict[State, str] = {"ok": typer.colors.GREEN, "note": typer.colors.YELLOW, "fail": typer.colors.RED}


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report.

    `remedy` is a sentence with a command or a link, and empty if no action is needed. `is_untested`: the service did
    not answer, so nothing is known about its key."""

    state: State
    subject: str
    fact: str
    remedy: str = ""
    is_untested: bool = False

    def __str__(self) -> str:
        tail = f" {self.remedy}" if self.remedy else ""
        return f"{self.state:<5} {self.subject:<9} {self.fact}{tail}"


def untested_finding(subject: str, name: str) -> Finding:
    """Returns the finding that a service could not be tested because it does not answer."""
    remedy = "Check the network and its proxy; `threadhand doctor --offline` leaves services out."
    return Finding("fail", subject, f"{name} does not answer.", remedy, is_untested=True)


def failed_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.state == "fail")


def exit_code(findings: Iterable[Finding]) -> int:
    """Returns 1 if any check failed, else 0."""
    return int(bool(failed_findings(findings)))


def print_findings(findings: Sequence[Finding], *, as_json: bool = False, with_color: bool = False) -> int:
    """Prints the findings, one line each or as one JSON object. Returns the exit code."""
    code = exit_code(findings)
    if as_json:
        rows = [{name: asdict(one)[name] for name in ("state", "subject", "fact", "remedy")} for one in findings]
        sys.stdout.write(f"{json.dumps({'ok': not code, 'findings': rows}, ensure_ascii=False)}\n")
        return code
    for finding in findings:
        line = str(finding)
        if with_color:
            line = typer.style(line[:5], fg=_COLORS[finding.state]) + line[5:]
        sys.stdout.write(f"{line}\n")
    if code:
        sys.stdout.write("`threadhand setup` asks for keys, the model and who may use the agent.\n")
    return code
