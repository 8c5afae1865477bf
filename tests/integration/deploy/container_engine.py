"""Finds docker or podman, and makes the image that ours is based on where no registry answers."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.paths import REPOSITORY
from tests.requirements_of_the_machine import lacking

DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text("utf-8")
BASE = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)[0]
DEBIAN = "ca-certificates,libbz2-1.0,libffi8,liblzma5,libncursesw6,libreadline8t64,libsqlite3-0,libssl3t64,libuuid1"
"""What Python needs of Debian 13."""


def find_engine(folder: Path) -> str:
    """Returns `docker` or `podman`, whichever can get or make the base image. Skips the test if neither can."""
    why = "no engine answers"
    for engine in filter(shutil.which, ("docker", "podman")):
        if succeeds(folder, engine, "info"):
            ways = ((engine, "image", "inspect", BASE), (engine, "pull", BASE), make_base(engine, folder))
            if any(succeeds(folder, *command) for command in ways):
                return engine
            why = f"{engine} can neither get nor make {BASE}"
    return lacking("docker", why)


def succeeds(folder: Path, *command: str) -> bool:
    return subprocess.run(command, capture_output=True, cwd=folder, check=False).returncode == 0


def make_base(engine: str, folder: Path) -> tuple[str, ...]:
    """Returns a command that makes the base from Debian's packages, the Python of these tests and the certificates of
    this machine. It needs mmdebstrap."""
    prefix, python = sys.base_prefix, BASE.replace(":", "").partition("-")[0]
    certificates, hook = "/etc/ssl/certs/ca-certificates.crt", folder / "add-python"
    hook.write_text(
        f"""#!/bin/sh -e
        cp -a {prefix}/lib/libpython* $1/usr/local/lib
        tar -C {prefix}/lib --exclude='{python}/site-packages/*' -c {python} | tar -C $1/usr/local/lib -x
        cp {prefix}/bin/{python} $1/usr/local/bin/python3
        ln -s python3 $1/usr/local/bin/python
        cp {certificates} $1{certificates}
        chroot $1 sh -ec "ldconfig; python3 -m ensurepip"
        """
    )
    hook.chmod(0o755)
    changes = f"-c 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' -c 'ENV PIP_CERT={certificates}'"
    made = f"mmdebstrap --variant=minbase --include={DEBIAN} --customize-hook={hook} trixie base.tar"
    # the whole name, because engines look for a short one in registries
    return ("sh", "-ec", f"{made}; {engine} import {changes} base.tar docker.io/library/{BASE}")
