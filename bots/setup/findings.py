"""What the doctor found, one line each."""

import sys
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `remedy` is empty when there is nothing to do."""

    state: Literal["ok", "note", "fail"]
    subject: str
    fact: str
    remedy: str = ""

    def __str__(self) -> str:
        tail = f" {self.remedy}" if self.remedy else ""
        return f"{self.state:<5} {self.subject:<9} {self.fact}{tail}"


def report(findings: tuple[Finding, ...]) -> int:
    """Prints the findings; 1 if one of them fails."""
    sys.stdout.write("".join(f"{finding}\n" for finding in findings))
    return int(any(finding.state == "fail" for finding in findings))
