"""Files that a person, a disk or an enemy spoiled: each command answers with a name, never with a traceback.

Good files are spoiled by a seeded choice of ways; the same seed makes the same files. What is still good
after that may pass; what is refused must be refused by name.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from repro.cli import main
from tests.e2e.e2e_world import ROOT

Spoil = Callable[[random.Random, bytes], bytes]

ODD_TOKENS = (
    *(
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b"-1",
        b"1e999",
        b"NaN",
        b"-0.0",
        b"9007199254740993",
        b"0x1p+4",
    ),
    *(b"~", b"1_000", b"0o17", b"12:30:45", b"!!python/object:os.system", b"&a [*a]", b"<<: *a", b"${HOME}"),
    *(
        b"\xff\xfe",
        b"\x00",
        "\u202e\u2066".encode(),
        "e\u0301".encode(),
        b"\\ud800",
        b"../../etc/passwd",
        b"%s%n",
    ),
)


def _place(chance: random.Random, data: bytes) -> int:
    return chance.randrange(len(data) + 1)


def flip(chance: random.Random, data: bytes) -> bytes:
    """Change one byte."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def cut(chance: random.Random, data: bytes) -> bytes:
    """Lose the end."""
    return data[: _place(chance, data)]


def lose(chance: random.Random, data: bytes) -> bytes:
    """Lose some bytes in the middle."""
    at = _place(chance, data)
    return data[:at] + data[at + chance.randrange(1, 40) :]


def repeat(chance: random.Random, data: bytes) -> bytes:
    """Say a line twice."""
    lines = data.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


def swap(chance: random.Random, data: bytes) -> bytes:
    """Exchange two lines."""
    lines = data.splitlines(keepends=True)
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def token(chance: random.Random, data: bytes) -> bytes:
    """Put an odd value where a value stands."""
    values = list(re.finditer(rb'(?<=[:\[,] )[^\s,\[\]{}]+|(?<=[:\[,])"[^"]*"|\b\d+\b', data))
    if not values:
        return cut(chance, data)
    found = chance.choice(values)
    return data[: found.start()] + chance.choice(ODD_TOKENS) + data[found.end() :]


def insert(chance: random.Random, data: bytes) -> bytes:
    """Put odd bytes anywhere."""
    at = _place(chance, data)
    return data[:at] + chance.choice(ODD_TOKENS) + data[at:]


def nest(chance: random.Random, data: bytes) -> bytes:
    """Nest deeper than anybody means to."""
    at = _place(chance, data)
    return data[:at] + chance.choice([b"[", b'{"a":', b"- "]) * chance.choice([50, 5000]) + data[at:]


def other(chance: random.Random, data: bytes) -> bytes:
    """Be another kind of file altogether."""
    wide = data.decode("latin-1").encode("utf-16")
    kinds = [b"", b"\n", b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), wide, b"PK\x03\x04" + data]
    kinds += [
        b"\x1f\x8b\x08" + data,
        b"%YAML 9.9\n---\n" + data,
        data + b"\n---\n" + data,
        b"[]",
        b"null",
        b"0",
    ]
    return chance.choice(kinds)


WAYS: tuple[Spoil, ...] = (flip, cut, lose, repeat, swap, token, token, token, insert, nest, other)


@dataclass(slots=True)
class Tally:
    """What the commands answered to spoiled files of one kind."""

    kind: str
    tried: int = 0
    passed: int = 0
    names: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def call(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command in this process. What it does not catch, this does not catch either."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with (
        mock.patch.object(sys, "argv", ["repro", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    texts = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        texts.append(stream.read())
    return code, texts[0], texts[1]


def name_of(code: int, out: str, err: str) -> str | None:
    """The name of what a command answered; None where it gave none although it did not pass."""
    if code == 0:
        return "passed"
    if found := re.search(r"error\[([\w-]+)\]", err):
        return found[1]
    try:
        answer = json.loads(out)
    except ValueError:
        return None
    if "error" in answer:
        return str(answer["error"]["kind"])
    if answer.get("fresh") is False and answer.get("reasons"):
        return "stale"
    return str(answer.get("code") or "") or None


@dataclass(frozen=True, slots=True)
class Target:
    """A file to spoil, and the command that reads it."""

    kind: str
    file: Path
    command: tuple[str | Path, ...]

    def spoil(self, count: int, seed: int) -> Tally:
        """Spoil the file `count` times, one way or several at once, and see what the command answers."""
        tally, chance, good = Tally(self.kind), random.Random(f"{seed} {self.kind}"), self.file.read_bytes()
        for _ in range(count):
            data = good
            ways = chance.choices(WAYS, k=chance.choice([1, 1, 1, 2, 3]))
            for way in ways:
                data = way(chance, data) if data else data
            self.file.write_bytes(data)
            told = "+".join(way.__name__ for way in ways)
            tally.tried += 1
            try:
                name = name_of(*call(*self.command))
            except Exception as error:  # noqa: BLE001 - a traceback is what is looked for
                tally.faults.append(f"{told}: {type(error).__name__}: {error}"[:300])
                continue
            if name is None:
                tally.faults.append(f"{told}: refused without a name")
            tally.passed += name == "passed"
            tally.names[name or "-"] += 1
        self.file.write_bytes(good)
        return tally


def targets(folder: Path) -> list[Target]:
    """Copies of the reference pilot and of its signed run, and who reads them."""
    project, run, trust = folder / "pilot", folder / "pilot.cpu", folder / "trust.yaml"
    shutil.copytree(ROOT / "examples" / "pilot", project)
    shutil.copytree(ROOT / "manifests" / "pilot.cpu", run)
    shutil.copytree(ROOT / "manifests" / "keys", folder / "keys")
    shutil.copy(ROOT / "manifests" / "trust.yaml", trust)
    check = ("lock", "--check", "--json", "-C", project)
    verify = ("verify", run, "--trust", trust, "--json")
    bundle = next(run.glob("*.sigstore.json"))
    trace = min((run / "trace").rglob("*.jsonl"), key=lambda path: path.stat().st_size)
    return [
        Target("spec", project / "repro.yaml", check),
        Target("lock", project / "repro.lock", check),
        Target("requirements", project / "requirements.in", check),
        Target("manifest, shown", run / "manifest.json", ("show", run, "--json")),
        Target("manifest, verified", run / "manifest.json", verify),
        Target("signed lock", run / "repro.lock", ("export", run, "--format", "cyclonedx")),
        Target("bundle", bundle, verify),
        Target("trust policy", trust, verify),
        Target("trace", trace, ("diff", run, ROOT / "manifests" / "pilot.cpu", "--json")),
    ]
