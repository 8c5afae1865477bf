"""A fake `docker` command, which runs containers as plain processes of this machine, without isolation.

Tests the docker provider on machines without a Docker engine. It supports the commands that the provider uses and
refuses all others, stores containers and volumes as folders next to itself, and logs each command line.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(sys.argv[0]).parent


def main() -> int:
    arguments = sys.argv[1:]
    with (HERE / "asked").open("a") as asked:
        asked.write(json.dumps(arguments) + "\n")
    if (HERE / "down").exists():
        sys.stderr.write("Cannot connect to the Docker daemon. Is it running?\n")
        return 1
    answer = files(arguments)
    return containers(arguments) if answer is None else answer


def files(arguments: list[str]) -> int | None:
    match arguments:
        case ["version", *_]:
            return say("28.0.0")
        case ["image", "inspect", *_, image]:
            return say("sha256:1") if image != "missing" else fail(f"No such image: {image}")
        case ["volume", "create", *_, name]:
            (HERE / "volumes" / name).mkdir(parents=True, exist_ok=True)
            return say(name)
        case ["volume", "rm", "--force", name]:
            shutil.rmtree(HERE / "volumes" / name, ignore_errors=True)
            return say(name)
        case _:
            return None


def containers(arguments: list[str]) -> int:
    match arguments:
        case ["run", "--rm", *_]:
            return 0 if "broken" not in arguments else fail("exec: bash: not found")
        case ["run", "--detach", *rest]:
            return start(rest[rest.index("--name") + 1], rest)
        case ["exec", "--interactive", "--user", "1000:1000", "--workdir", "/workspace", *rest]:
            return enter(rest[0], rest[1:])
        case ["rm", "--force", name]:
            return remove(name)
        case ["ps", *_]:
            return say("\n".join(path.read_text() for path in sorted((HERE / "running").glob("*"))))
        case _:
            return fail(f"unknown command {arguments}")


def start(name: str, rest: list[str]) -> int:
    running = HERE / "running"
    running.mkdir(exist_ok=True)
    if (running / name).exists():
        return fail(f"the name {name} is in use")
    thread = next(part for part in rest if part.startswith("threadhand.thread="))
    (running / name).write_text(thread.partition("=")[2])
    return say("0123456789ab")


def enter(name: str, command: list[str]) -> int:
    if not (HERE / "running" / name).exists():
        return fail(f"No such container: {name}")
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "TMPDIR": str(HERE), "LANG": "C.UTF-8"}
    inside = subprocess.Popen(
        [sys.executable, *command[1:]], cwd=HERE / "volumes" / name, env=environment, start_new_session=True
    )
    with (HERE / f"pids-{name}").open("a") as pids:
        pids.write(f"{inside.pid}\n")
    return inside.wait()


def remove(name: str) -> int:
    if not (HERE / "running" / name).exists():
        return fail(f"No such container: {name}")
    pids = HERE / f"pids-{name}"
    if pids.exists():
        for pid in pids.read_text().split():
            with suppress(ProcessLookupError):
                os.killpg(int(pid), signal.SIGKILL)
        pids.unlink()
    (HERE / "running" / name).unlink()
    return say(name)


def say(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def fail(text: str) -> int:
    sys.stderr.write(f"Error: {text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
