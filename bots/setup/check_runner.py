"""Runs the checks of a report in parallel, within one deadline, so that no check can hold up or end the report."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bots.setup.findings import Finding, untested_finding

REPORT_SECONDS = 14.0
CANCEL_SECONDS = 2.0
"""How long a check that is cancelled may take to close its connections."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one service or setting. If the check takes too long, the finding says that `name` did not answer, and
    suggests `remedy`, or else the usual remedy for network problems."""

    subject: str
    run: Callable[[], Awaitable[tuple[Finding, ...]]]
    name: str = ""
    remedy: str = ""


def blocking_check(subject: str, check: Callable[[], Finding | tuple[Finding, ...]]) -> Check:
    """Wraps a blocking check so that it runs in a thread."""

    async def run() -> tuple[Finding, ...]:
        found = await asyncio.to_thread(check)
        return (found,) if isinstance(found, Finding) else found

    return Check(subject, run, "the check")


async def run_in_parallel(checks: Sequence[Check], *, seconds: float = REPORT_SECONDS) -> tuple[Finding, ...]:
    """Returns the findings of all checks in the order of the checks.

    A check that has not ended after `seconds` fails with a finding that names what did not answer. A check that raises
    an exception fails as well. Only the type of the exception is named, because its message may contain a secret."""
    tasks = [asyncio.ensure_future(_guarded(check)) for check in checks]
    if not tasks:
        return ()
    try:
        await asyncio.wait(tasks, timeout=seconds)
        late = [task for task in tasks if not task.done()]
    finally:
        for task in tasks:
            task.cancel()
    if late:
        await asyncio.wait(late, timeout=CANCEL_SECONDS)
    findings: list[Finding] = []
    for check, task in zip(checks, tasks, strict=True):
        if task in late or task.cancelled():
            name = check.name or check.subject
            remedy = check.remedy or untested_finding(check.subject, name).remedy
            fact = f"{name} did not answer in {seconds:g} s."
            findings.append(Finding("fail", check.subject, fact, remedy, is_untested=True))
        else:
            findings += task.result()
    return tuple(findings)


async def _guarded(check: Check) -> tuple[Finding, ...]:
    try:
        return await check.run()
    except Exception as error:  # noqa: BLE001,RUF100 - whatever one check raises, the report goes on
        fact = f"cannot be checked: {type(error).__name__}."
        those = f", above all those of {check.name}" if check.name else ""
        return (Finding("fail", check.subject, fact, f"Compare its settings with docs/operators/settings.md{those}."),)
