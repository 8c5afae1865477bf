"""The calls that each operation makes, as seen with the pinned SDK: an upgrade that changes them is looked at."""

import asyncio
from collections import Counter

import modal_version

from sandbox.modal.account import ModalAccount
from sandbox.modal.run_queue import open_modal_run_queue
from simulator.modal.world import Pace
from tests.integration.simulator.modal.deployment import published
from tests.support.modal_stage import Stage, modal_stage
from tests.support.sandboxes import run
from tests.support.waiting import until

SEEN_WITH = "1.6.4"
UNCOUNTED = {"TaskExecStdioRead", "TaskExecStdinWrite", "EnvironmentGetOrCreate"}
"""As many as there was to say, and one that a process makes once."""
SEEN = {
    "first sandbox": {
        "AppGetOrCreate": 1,
        "ImageGetOrCreate": 2,
        "ImageJoinStreaming": 2,
        "AuthTokenGet": 1,
        "SandboxCreateV2": 1,
        "TaskExecStart": 1,
    },
    "command": {},
    "link": {"SandboxCreateConnectTokenV2": 1},
    "save": {"TaskSnapshotFilesystem": 1, "ImageFromId": 1},
    "save again": {"TaskSnapshotFilesystem": 1, "ImageFromId": 1, "ImageDelete": 1},
    "stop": {
        "TaskExecWait": 1,
        "TaskSnapshotFilesystem": 1,
        "ImageFromId": 1,
        "ImageDelete": 1,
        "SandboxTerminateV2": 1,
    },
    "restore": {
        "ImageFromId": 1,
        "SandboxCreateV2": 1,
        "TaskExecStart": 1,
        "SandboxWaitV2": 2,
        "SandboxGetExitSnapshotV2": 1,
        "ImageDelete": 1,
    },
    "join": {
        "AppGetOrCreate": 0,
        "SandboxWaitV2": 1,
        "SandboxTagsGetV2": 1,
        "SandboxGetTaskIdV2": 1,
        "SandboxGetCommandRouterAccess": 1,
        "TaskExecStart": 1,
    },
    "destroy": {
        "TaskExecWait": 1,
        "SandboxTerminateV2": 1,
        "SandboxWaitV2": 2,
        "SandboxListV2": 1,
        "SandboxGetExitSnapshotV2": 1,
        "ImageDelete": 2,
    },
    "destroy what never was": {"SandboxListV2": 1},
    "begin to hand runs over": {"FunctionGet": 1},
    "hand a run over": {"FunctionMap": 1},
    "hand another run over": {"FunctionMap": 1},
}


class EveryTime:
    """Each handover is the first."""

    async def begin(self, run_id: str) -> bool:
        return bool(run_id)


async def test_operations_make_the_calls_that_they_are_known_for() -> None:
    async with modal_stage(pace=Pace(end_seconds=(0, 0))) as stage:
        seen = await played(stage)
    told = f"modal {modal_version.__version__} makes other calls than {SEEN_WITH} did: look at each"
    assert seen == {name: {k: n for k, n in calls.items() if n} for name, calls in SEEN.items()}, told


async def played(stage: Stage) -> dict[str, dict[str, int]]:
    seen: dict[str, dict[str, int]] = {}
    begun = 0

    def note(name: str) -> None:
        nonlocal begun
        counted = Counter(stage.modal.calls[begun:])
        seen[name] = {call: number for call, number in counted.items() if call not in UNCOUNTED}
        begun = len(stage.modal.calls)

    worker, other = stage.worker(egress=("*",)), stage.worker()
    sandbox = await worker.open("thread", fence=1)
    note("first sandbox")
    await run(sandbox, "true")
    note("command")
    await sandbox.find_port_url(8080)
    note("link")
    for name in ("save", "save again"):
        worker.release("thread")
        await until(lambda: not worker._save_tasks)
        note(name)
    await sandbox.close()
    note("stop")
    await worker.open("thread", fence=2)
    await until(lambda: not worker._save_tasks)
    note("restore")
    await other.open("thread", fence=0)
    note("join")
    await worker.destroy("thread")
    note("destroy")
    await worker.destroy("never-seen")
    note("destroy what never was")
    await published(await worker._account.client(), "threadhand", "modal_app", "execute_run")
    begun = len(stage.modal.calls)
    async with open_modal_run_queue(ModalAccount("threadhand"), EveryTime()) as queue:
        note("begin to hand runs over")
        for name in ("hand a run over", "hand another run over"):
            await queue.put(name)
            await asyncio.wait(queue._spawning.values())
            note(name)
    return seen
