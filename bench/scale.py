"""How time and memory grow with what there is to do, ten times at a step: `python bench/scale.py`.

Each row does a tenth and the whole: packages to lock and to check, files to hash, bytes of a model (a sparse
file: every byte is read and hashed), ranks to compare, run folders beside the one that is verified. `growth`
is the larger time by the smaller one; ten is linear, less is better. `said` is what the work said of itself.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compare import trace, write
from measured import measured

from repro.compare import compare
from repro.resolve.files import hash_tree
from repro.tolerance import ToleranceSpec

Row = dict[str, Any]
ROOT = Path(__file__).parent.parent
REPRO = [sys.executable, "-c", "import sys; from repro.cli import main; sys.argv[0] = 'repro'; main()"]
SPEC = """\
version: 1
name: many
pilot: {command: [python, train.py], source: [train.py], steps: 1}
seed: 1
accelerators:
  cpu: {dockerfile: Dockerfile.cpu, base: "repro-base:bookworm", requirements: [requirements.in]}
"""


def run(*arguments: str | Path, **environment: str) -> str:
    """Run the command line and return the last thing it said."""
    command = [*REPRO, *map(str, arguments)]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"{arguments}: {ended.stderr[-600:]}")
    return (ended.stdout.strip() or ended.stderr.strip()).splitlines()[-1]


def make_wheel(folder: Path, name: str) -> None:
    """A package with one module."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"NAME = {name!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},"
        for path, text in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


def write_project(folder: Path, requirements: str) -> None:
    """A project with nothing but requirements."""
    folder.mkdir(exist_ok=True)
    (folder / "requirements.in").write_text(requirements)
    (folder / "repro.yaml").write_text(SPEC)
    (folder / "train.py").write_text("print(1)\n")
    shutil.copy(ROOT / "Dockerfile.cpu", folder)


def package_project(folder: Path, count: int) -> dict[str, str]:
    """A project that needs `count` packages, and the environment in which pip finds just those."""
    index = folder / "simple"
    names = [f"package{number:05d}" for number in range(count)]
    for name in names:
        (index / name).mkdir(parents=True)
        make_wheel(index / name, name)
        file = f"{name}-1.0-py3-none-any.whl"
        (index / name / "index.html").write_text(f'<!DOCTYPE html><a href="{file}">{file}</a>')
    write_project(folder / "project", "".join(f"{name}==1.0\n" for name in names))
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    return {**nowhere, "PIP_INDEX_URL": index.as_uri(), "REPRO_CACHE": str(folder.parent / "cache")}


def packages(folder: Path, count: int) -> list[Row]:
    """Lock a project, lock it again, and ask whether the lock still holds."""
    write_project(folder / "warm", "click\n")
    run("lock", "-C", folder / "warm", REPRO_CACHE=str(folder.parent / "cache"))
    environment = package_project(folder, count)
    where = ("-C", folder / "project")
    return [
        row("lock", count, run_in, environment, "lock", *where),
        row("lock, nothing changed", count, run_in, environment, "lock", *where),
        row("lock --check", count, run_in, environment, "lock", "--check", *where),
    ]


def files(folder: Path, count: int) -> list[Row]:
    """Hash a tree of small files."""
    for number in range(count):
        place = folder / f"{number // 1000}"
        place.mkdir(exist_ok=True)
        (place / f"{number}.txt").write_text(f"{number}\n")
    return [row("hash files", count, lambda: f"{len(hash_tree(folder))} files")]


def model(folder: Path, size: int) -> list[Row]:
    """Hash one sparse file."""
    with (folder / "model.safetensors").open("wb") as stream:
        stream.truncate(size)
    return [row("hash bytes of a model", size, lambda: hash_tree(folder)[0].digest[:19])]


def ranks(folder: Path, count: int) -> list[Row]:
    """Compare 2,000 steps of many ranks that differ from step 7 on."""
    sides = folder / "target.jsonl", folder / "candidate.jsonl"
    write(sides[0], 2_000, departs=None, clock=0)
    write(sides[1], 2_000, departs=7, clock=1)

    def judge() -> str:
        target, candidate = (trace(side, count) for side in sides)
        return compare(target, candidate, tolerance=ToleranceSpec()).sentence

    return [row("ranks to compare", count, judge)]


def manifests(folder: Path, count: int) -> list[Row]:
    """Verify and show one run among many."""
    kept = ROOT / "manifests"
    for number in range(count):
        shutil.copytree(kept / "pilot.cpu", folder / f"run{number}", copy_function=shutil.copyfile)
    one = folder / "run0"
    return [
        row("verify, among run folders", count, run, "verify", one, "--trust", kept / "trust.yaml"),
        row("show, among run folders", count, run, "show", one),
    ]


def run_in(environment: dict[str, str], *arguments: str | Path) -> str:
    return run(*arguments, **environment)


def row(work: str, size: int, what: Callable[..., str], *arguments: Any) -> Row:
    seconds, peak, said = measured(what, *arguments)
    return {"work": work, "size": size, "seconds": seconds, "peak_bytes": peak, "said": said}


KINDS: dict[str, tuple[Callable[[Path, int], list[Row]], int]] = {
    "packages": (packages, 1_000),
    "files": (files, 100_000),
    "model": (model, 20 << 30),
    "ranks": (ranks, 64),
    "manifests": (manifests, 1_000),
}


def tell(small: Row, large: Row) -> None:
    growth = large["seconds"] / max(small["seconds"], 1e-3)
    times = large["size"] / small["size"]
    print(
        f"{large['work']:28} {large['size']:>12} {small['seconds']:>8.2f} {large['seconds']:>8.2f}"
        f" {growth:>7.1f} of {times:<4.0f} {large['peak_bytes'] / 1e6:>8.1f}  {large['said'][:50]}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", help=f"some of {', '.join(KINDS)}; all by default")
    parser.add_argument("--json", type=Path, help="write the table here too")
    options = parser.parse_args()
    print(
        f"{'work':28} {'size':>12} {'tenth s':>8} {'whole s':>8} {'growth':>7}         {'peak MB':>8}  said"
    )
    rows: list[Row] = []
    for name in options.kinds or KINDS:
        work, size = KINDS[name]
        sides = []
        for part in (-(-size // 10), size):
            with tempfile.TemporaryDirectory(prefix="repro-scale-") as place:
                folder = Path(place) / "here"
                folder.mkdir()
                sides.append(work(folder, part))
        for small, large in zip(*sides, strict=True):
            tell(small, large)
            rows += [small, large]
    if options.json:
        options.json.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
