"""A program that is asked to end does so in time, even if a part of it does not."""

import os
import signal
import subprocess
import sys
import time

from sandbox.limits import SandboxLimits
from sandbox.local.egress_policy import EgressConfig, parse_egress_policy
from sandbox.local.process_table import is_alive, process_tree
from tests.paths import REPOSITORY
from tests.support.sandboxes import local_jails, run

STUCK = """
import asyncio, time
from bots.__main__ import _run

async def work():
    print("working", flush=True)
    try:
        await asyncio.sleep(1000)
    finally:
        time.sleep(1000)

_run(work(), exit_seconds=0.3)
"""


def test_a_program_that_cannot_end_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "working\n"
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=30) == 1


async def test_many_jails_that_refuse_to_end_are_gone_within_seconds() -> None:
    egress = EgressConfig(policy=parse_egress_policy("on"))
    async with local_jails(SandboxLimits(), egress=egress) as jails:
        for number in range(12):
            sandbox = await jails.open(f"thread-{number}", fence=1)
            await run(sandbox, "trap '' TERM HUP INT; (exec 3<>/dev/tcp/127.0.0.1/3128; sleep 999) &")
            await run(sandbox, "sleep 999", session="busy", seconds=0.01)
        (frozen, *_) = jails._jails()
        os.kill(process_tree(frozen.pid)[2], signal.SIGSTOP)
        members = [pid for jail in jails._jails() for pid in process_tree(jail.pid)]
        started = time.monotonic()
        await jails.close()
        assert time.monotonic() - started < 30
        assert list(filter(is_alive, members)) == []
