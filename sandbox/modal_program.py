"""The program inside as it is sent into a sandbox: its files in one piece, and the few lines that unpack them."""

import hashlib
import importlib.util
import json
import marshal
import py_compile
import sys
import tempfile
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sandbox

SUFFIXES = (".py", ".js")
UNPACK = """\
import marshal, os, sys, zlib
size, digest, told = int(sys.argv[1]), sys.argv[2], sys.argv[3]
packed = b""
while len(packed) < size:
    piece = os.read(0, size - len(packed))
    if not piece:
        sys.exit("the program did not come whole")
    packed += piece
place = os.path.join(os.environ.get("TMPDIR", "/tmp"), "threadhand-" + digest)
for name, content in marshal.loads(zlib.decompress(packed)).items():
    path = os.path.join(place, name)
    try:
        with open(path, "rb") as file:
            if file.read() == content:
                continue
    except OSError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + "." + str(os.getpid()), "wb") as file:
        file.write(content)
    os.replace(path + "." + str(os.getpid()), path)
sys.path.insert(0, place)
sys.argv = ["threadhand", "0", "1", told]
from sandbox.inside.hosted import main
main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """`content` is what the command wants on its standard input before anything else."""

    content: bytes
    digest: str

    def command(self, settings: dict[str, object]) -> list[str]:
        told = json.dumps(settings)
        return ["python3", "-I", "-S", "-c", UNPACK, str(len(self.content)), self.digest, told]


@cache
def packed_program() -> Packed:
    """With code compiled for this Python beside the sources; another Python compiles them itself. Blocks for 0.1 s."""
    origin = Path(sandbox.__file__).parent
    found: dict[str, bytes] = {"sandbox/__init__.py": b""}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((origin / "inside").rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            name = f"sandbox/{path.relative_to(origin).as_posix()}"
            found[name] = path.read_bytes()
            if path.suffix == ".py":
                compiled = Path(folder) / "compiled"
                py_compile.compile(
                    str(path),
                    cfile=str(compiled),
                    dfile=name,
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
                found[_cached(name)] = compiled.read_bytes()
    content = zlib.compress(marshal.dumps(found, 2))
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Packed(content=content, digest=digest)


def _cached(name: str) -> str:
    assert sys.implementation.cache_tag is not None  # noqa: S101 - CPython has one
    return importlib.util.cache_from_source(name)
