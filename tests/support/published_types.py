"""The type definitions that npm has of a platform, as JSON schemas: what somebody else thinks of a payload."""

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from tests.requirements_of_the_machine import lacking

GENERATOR = "typescript-json-schema"
PACKAGES = {
    "discord-api-types": "0.38.57",
    "@slack/types": "3.2.0",
    "@slack/bolt": "5.1.0",
    "@slack/web-api": "8.1.1",
    GENERATOR: "0.68.0",
}
SECONDS = 300
OPTIONS = ("--required", "--strictNullChecks", "--skipLibCheck", "--ignoreErrors")
ALL_TYPES = "AllTypes"


def install_packages(folder: Path) -> Path:
    """Installs the packages into the folder. Skips the test, loudly, on a machine without npm or without a registry."""
    for program in ("npm", "node"):
        if shutil.which(program) is None:
            lacking("npm", f"{program} is not on this machine; install Node.js with npm")
    named = [f"{name}@{version}" for name, version in PACKAGES.items()]
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline")
    (folder / "package.json").write_text("{}")
    installed = _run(["npm", "install", *options, *named], folder)
    if installed.returncode:
        lacking("npm", f"npm cannot install {' '.join(named)}: {installed.stderr[-500:]}")
    return folder


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "npm_config_update_notifier": "false"},  # noqa: TID251 - npm needs its settings
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def without_nulls(value: object) -> object:
    """The value without the fields that are null, at any depth."""
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return value


Reading = Callable[[object], object]


@dataclass
class PublishedTypes:
    """Schemas by name. `refuse` collects what the types do not allow; `seen` counts the payloads of each name."""

    definitions: dict[str, Any]
    schemas: dict[str, Any]
    refusals: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, object] = field(default_factory=dict[str, object])
    seen: Counter[str] = field(default_factory=Counter[str])

    def check(self, name: str, payload: object, *, as_well: Sequence[Reading] = ()) -> None:
        """Notes what is wrong with the payload, by the type of this name.

        `as_well` are ways to read it, one after the other, of which one has to make it valid.
        """
        self.seen[name] += 1
        if name not in self.schemas:
            self._note(f"{name}: no published type is known to this test", payload)
            return
        validator, read = self.validator(name), payload
        error = best_match(validator.iter_errors(read))
        for reading in as_well if error is not None else ():
            read = reading(read)
            error = best_match(validator.iter_errors(read))
            if error is None:
                break
        if error is not None:
            place = "/".join("*" if isinstance(p, int) else str(p) for p in error.absolute_path)
            self._note(f"{name} at /{place}: {error.message[:300]}", payload)

    def validator(self, name: str) -> Draft7Validator:
        return Draft7Validator({**self.schemas[name], "definitions": self.definitions})

    def _note(self, refusal: str, payload: object) -> None:
        self.refusals[refusal] += 1
        self.examples.setdefault(refusal, payload)

    def report(self) -> str:
        """What was refused and how often, with an example of each; empty if nothing was."""
        lines = [
            f"{times} x {refusal}\n    {json.dumps(self.examples[refusal])[:1500]}"
            for refusal, times in sorted(self.refusals.items())
        ]
        return "\n".join(lines)


def build_schemas(folder: Path, modules: Mapping[str, str], types: Mapping[str, str]) -> PublishedTypes:
    """Schemas of TypeScript types, by the names of the mapping. `modules` are imported by their short names."""
    source = folder / f"types-of-{'-'.join(modules)}.ts"
    fields = "".join(f"{json.dumps(name)}: {written};\n" for name, written in types.items())
    imports = "".join(f"import type * as {name} from '{one}';\n" for name, one in modules.items())
    source.write_text(f"{imports}export interface {ALL_TYPES} {{\n{fields}}}\n")
    program = folder / "node_modules" / GENERATOR / "bin" / GENERATOR
    made = _run(["node", str(program), source.name, ALL_TYPES, *OPTIONS], folder)
    assert made.returncode == 0, made.stderr[-3000:]
    schema = json.loads(made.stdout)
    definitions = schema["definitions"]
    _allow_sums_of_flags(schema)
    published = PublishedTypes(definitions, schema["properties"])
    vague = [name for name in types if published.validator(name).is_valid(0)]
    assert vague == [], "a schema that allows a number here allows everything"
    return published


def _allow_sums_of_flags(schema: object) -> None:
    """Flags are sums of bits, and the types list each bit: any number is one of the fields that are named so."""
    if isinstance(schema, list):
        for one in schema:
            _allow_sums_of_flags(one)
    if isinstance(schema, dict):
        for name, one in schema.items():
            is_flags = name.lower().endswith("flags") and isinstance(one, dict)
            if is_flags and one.keys() & {"enum", "const"}:
                schema[name] = {"type": "integer"}
            elif is_flags and "anyOf" in one:
                schema[name] = {"type": ["integer", "null"]}
            else:
                _allow_sums_of_flags(one)
