"""How long locking takes, beside its peers on the same input: `python bench/lock.py`.

Packages: `repro lock` cold (empty cache, tools made), warm (wheels held, a requirement added) and unchanged,
against `pip-compile --generate-hashes` and, where it is there, `uv pip compile --generate-hashes`. The peers
resolve and hash; they do not fetch the wheels, which the cold figure includes and names apart.

Check: `repro lock` of 300 packages out of a folder, the same again, and `repro lock --check`, as whole
processes, against `uv pip compile` on the same folder. Needs an engine with the base of
`scripts/prepare`.

Files: hashing a tree against `openssl dgst -sha256` run in parallel on the same files, large ones one by one,
and `model_signing` where it is installed. The page cache is warmed first; five rounds, in turns, and
the median of their ratios counts. Give `--bytes 4G` for the full size.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from repro.adapters.cache import FileCache
from repro.adapters.pip import PipResolver
from repro.lock import Platform
from repro.resolve.files import hash_tree
from repro.resolve.requirements import read_inputs

ROUNDS = 5
REQUIREMENTS = "torch==2.13.0\nnumpy\npyyaml\nsafetensors\n"


class Phases:
    """Progress that remembers when each phase began."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, float]] = []

    def start(self, what: str, total: int | None = None) -> None:  # noqa: ARG002 - only times are kept
        self.marks.append((what, time.perf_counter()))

    def advance(self, amount: int = 1, note: str = "") -> None:
        pass

    def line(self, text: str) -> None:
        pass

    def told(self, end: float) -> str:
        ends = [mark for _, mark in self.marks[1:]] + [end]
        return ", ".join(
            f"{what} {after - at:.1f} s" for (what, at), after in zip(self.marks, ends, strict=True)
        )


def row(name: str, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    note = work()
    took = time.perf_counter() - started
    print(f"  {name:34} {took:8.2f} s   {note if isinstance(note, str) else ''}".rstrip())
    return took


def packages(folder: Path) -> None:
    print("packages: " + " ".join(REQUIREMENTS.split()))
    root = folder / "project"
    root.mkdir()
    (root / "requirements.in").write_text(REQUIREMENTS)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    platform = Platform(python=version, os="linux", architecture=os.uname().machine, libc="glibc 2.36")
    resolver = PipResolver(FileCache(folder / "cache"))

    def resolve() -> str:
        phases = Phases()
        inputs, _, _ = read_inputs(root, ["requirements.in"], [], [], platform)
        resolver.resolve(inputs, platform=platform, previous=(), upgrade=None, progress=phases)
        return phases.told(time.perf_counter())

    row("repro, cold", resolve)
    row("repro, wheels and tools held", resolve)
    (root / "requirements.in").write_text(REQUIREMENTS + "tqdm\n")
    row("repro, one requirement more", resolve)
    output = str(folder / "peer.txt")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
    pip_compile = [
        str(Path(sys.executable).parent / "pip-compile"),
        "--quiet",
        "--generate-hashes",
        "--allow-unsafe",
    ]
    cache = ["--cache-dir", str(folder / "pip-tools")]
    command = [*pip_compile, *cache, "-o", output, str(root / "requirements.in")]
    row("pip-compile, cold", lambda: subprocess.run(command, **quiet))  # type: ignore[call-overload]
    if (uv := shutil.which("uv")) is None:
        print("  uv pip compile                     not there")
        return
    command = [uv, "pip", "compile", "--quiet", "--generate-hashes", "--cache-dir", str(folder / "uv")]
    command += ["-o", output, str(root / "requirements.in")]
    row("uv pip compile, cold", lambda: subprocess.run(command, **quiet))  # type: ignore[call-overload]


def small_wheel(folder: Path, name: str, version: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        info = f"{name}-{version}.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


SPEC = """\
version: 1
name: many
seed: 1
pilot: {command: [python, train.py], source: [train.py], steps: 1}
accelerators:
  cpu: {dockerfile: Dockerfile, base: "repro-base:bookworm", requirements: [requirements.in]}
"""


def check(folder: Path, packages: int = 300) -> None:
    print(f"check: {packages} packages out of a folder")
    root = folder / "many"
    (root / "wheels").mkdir(parents=True)
    for number in range(packages):
        small_wheel(root / "wheels", f"package{number}", "1.0")
    names = "".join(f"package{number}\n" for number in range(packages))
    (root / "requirements.in").write_text(f"--find-links wheels\n{names}")
    (root / "train.py").write_text("pass\n")
    (root / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    (root / "repro.yaml").write_text(SPEC)
    repro = [str(Path(sys.executable).parent / "repro"), "lock", "-C", str(root)]
    # The wheels are nowhere else: no index is asked for them.
    environment = {**os.environ, "PIP_NO_INDEX": "1"}

    def call(command: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run(command, check=True, capture_output=True, env=environment)

    try:
        row("repro lock, first", call(repro))
    except subprocess.CalledProcessError as error:
        print(f"  left out: {error.stderr.decode().strip().splitlines()[-1]}")
        return
    row("repro lock, nothing changed", call(repro))
    ours = row("repro lock --check", call([*repro, "--check"]))
    if (uv := shutil.which("uv")) is not None:
        command = [uv, "pip", "compile", "--no-index", "--generate-hashes", "-o", str(folder / "many.txt")]
        command += [str(root / "requirements.in")]
        call(command)()
        print(f"  ratio of --check: {ours / row('uv pip compile, warm', call(command)):.2f}")


def make_tree(root: Path, size: int) -> None:
    """Shards of at most 512 MiB, and 256 small files."""
    small = 256
    (root / "small").mkdir(parents=True)
    for number in range(small):
        (root / "small" / f"{number}.json").write_bytes(os.urandom(2048))
    left, number = size, 0
    block = os.urandom(1 << 20)
    while left > 0:
        with (root / f"shard-{number}.safetensors").open("wb") as stream:
            for _ in range(min(left, 512 << 20) >> 20):
                stream.write(block)
        left -= 512 << 20
        number += 1


def files(folder: Path, size: int) -> None:
    root = folder / "tree"
    make_tree(root, size)
    workers = os.cpu_count() or 1
    count = sum(1 for path in root.rglob("*") if path.is_file())
    print(f"files: {size / 2**30:.1f} GiB in {count} files, {workers} cores")
    hash_tree(root)
    each = f"xargs -0 -P {workers} -n"
    openssl = (
        f"find {root} -size +1M -print0 | {each} 1 openssl dgst -sha256 > {folder}/large.txt && "
        f"find {root} -type f -size -1M -print0 | {each} 64 openssl dgst -sha256 > {folder}/small.txt"
    )
    contenders: dict[str, Callable[[], object]] = {
        "repro": lambda: f"{len(hash_tree(root))} files",
        "openssl dgst -sha256, parallel": lambda: subprocess.run(["sh", "-c", openssl], check=True),
    }
    try:
        import model_signing
    except ImportError:
        print("  model_signing                      not there")
    else:
        contenders["model_signing"] = lambda: model_signing.hashing.hash(root)
    took: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, work in contenders.items():
            took[name].append(row(name, work))
    ours = took.pop("repro")
    for name, times in took.items():
        ratio = statistics.median(a / b for a, b in zip(ours, times, strict=True))
        print(f"  ratio to {name}: {ratio:.2f}")


def amount(text: str) -> int:
    match = re.fullmatch(r"(\d+)([MG])", text)
    if match is None:
        raise argparse.ArgumentTypeError("write 512M or 4G")
    return int(match[1]) << {"M": 20, "G": 30}[match[2]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=amount, default=amount("1G"), help="size of the tree to hash")
    parser.add_argument("--folder", help="where to work")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        files(Path(name), options.bytes)
        check(Path(name))
        packages(Path(name))


if __name__ == "__main__":
    main()
