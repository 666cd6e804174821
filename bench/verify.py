"""Verifying, against others that verify: `python bench/verify.py`.

Small: a run folder (the signed demo run), by `repro verify`, by OpenSSF Model Signing's `model_signing verify
key` over the same folder, and by `cosign verify-blob-attestation`, which looks at one file of it.
Large: a run with a model of several GiB (`repro verify --models`), against `openssl dgst -sha256`, as many at
once as there are processors, and against model_signing, over the same files.
Everything takes turns, so that a busy machine slows all alike; figures are medians of wall seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from repro.attest.envelope import open_bundle  # noqa: E402
from repro.digest import digest_stream  # noqa: E402
from tests.attest.attest_world import World  # noqa: E402
from tests.attest.cosign_tool import find_cosign  # noqa: E402

REPRO = Path(sys.executable).parent / "repro"
RUN, TRUST = ROOT / "manifests" / "pilot.cpu", ROOT / "manifests" / "trust.yaml"
Commands = dict[str, Callable[[], object]]


def quietly(*command: object) -> None:
    """Run, and fail where the command does. Byte code is cached, as after an installation."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed\n{done.stdout}{done.stderr}")


def model_signing() -> Path:
    """Install model_signing apart from us, once."""
    place = ROOT / ".cache" / "bench" / "model_signing"
    program = place / "bin" / "model_signing"
    if not program.exists():
        quietly(sys.executable, "-m", "venv", place)
        quietly(place / "bin" / "pip", "install", "-q", "model-signing==1.1.1", "pyopenssl")
    return program


def peer_key(folder: Path) -> None:
    """A key of the kind that both know."""
    key = folder / "peer.pem"
    quietly("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    quietly("openssl", "ec", "-in", key, "-pubout", "-out", folder / "peer.pub")


def by_model_signing(program: Path, tree: Path, folder: Path) -> Callable[[], object]:
    """Sign a tree and return the command that verifies it."""
    signature = folder / f"{tree.name}.sig"
    quietly(program, "sign", "key", tree, "--private_key", folder / "peer.pem", "--signature", signature)
    options = ("--public_key", folder / "peer.pub", "--signature", signature)
    return lambda: quietly(program, "verify", "key", tree, *options)


def small(folder: Path, peer: Path) -> Commands:
    """The demo run."""
    run = folder / "run"
    shutil.copytree(RUN, run)
    commands: Commands = {
        "repro verify": lambda: quietly(REPRO, "verify", run, "--trust", TRUST),
        "model_signing verify": by_model_signing(peer, run, folder),
    }
    cosign, reason = find_cosign("sid")
    if cosign is None:
        print(f"without cosign: {reason}")
        return commands
    (bundle,) = run.glob("*.sigstore.json")
    open_bundle(bundle.read_bytes(), where=bundle.name)
    key = next((TRUST.parent / "keys").glob("*.pub"))
    commands["cosign, one file"] = lambda: quietly(
        *(cosign, "verify-blob-attestation", "--key", key, "--insecure-ignore-tlog"),
        *("--type", "https://repro-manifest/run/v1", "--bundle", bundle, run / "manifest.json"),
    )
    return commands


def write_model(folder: Path, gib: float, parts: int) -> list[dict[str, Any]]:
    """Write random files and return them as a lock lists them."""
    block = os.urandom(1 << 24)
    files = []
    for number in range(parts):
        path = folder / f"part-{number:02}.bin"
        with path.open("wb") as stream:
            for index in range(int(gib * (1 << 30)) // parts // len(block)):
                stream.write(index.to_bytes(8, "big") + block[8:])
        with path.open("rb") as stream:
            digest, size = digest_stream(stream)
        files.append({"path": path.name, "size": size, "digest": digest})
    return files


def large(folder: Path, peer: Path, gib: float, parts: int) -> Commands:
    """A run with a large model."""
    model = folder / "models" / "base"
    model.mkdir(parents=True)
    files = write_model(model, gib, parts)
    world = World(folder / "world")
    world.models = [
        {
            "name": "base",
            "kind": "path",
            "requested": "models/base",
            "target": "models/base",
            "files": files,
            "total_bytes": sum(file["size"] for file in files),
        }
    ]
    world.policy["expires"] = None
    for entry in world.policy["keys"]:
        entry |= {"notBefore": None, "notAfter": None}
    world.write_run(created_at="2026-01-01T00:00:00Z")
    world.sign()
    trust = world.write_policy()
    paths = sorted(model.iterdir())

    def openssl() -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda path: quietly("openssl", "dgst", "-sha256", path), paths))

    return {
        "repro verify --models": lambda: quietly(
            REPRO, "verify", world.run, "--trust", trust, "--models", folder
        ),
        "openssl dgst, parallel": openssl,
        "model_signing verify": by_model_signing(peer, model, folder),
    }


def measure(name: str, commands: Commands, rounds: int) -> list[dict[str, Any]]:
    """Let the commands take turns, after one turn that is not counted."""
    times: dict[str, list[float]] = {what: [] for what in commands}
    for turn in range(rounds + 1):
        for what, command in commands.items():
            started = time.perf_counter()
            command()
            if turn:
                times[what].append(time.perf_counter() - started)
    own = statistics.median(next(iter(times.values())))
    print(f"{name:36} {'seconds':>8} {'ours / theirs':>14}")
    rows = []
    for what, values in times.items():
        median = statistics.median(values)
        print(f"  {what:34} {median:8.3f} {own / median:14.2f}")
        rows.append({"of": name, "command": what, "seconds": median, "ours/theirs": own / median})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="of the small run")
    parser.add_argument("--large-rounds", type=int, default=3)
    parser.add_argument("--gib", type=float, default=4, help="size of the model; 0 leaves it out")
    parser.add_argument("--parts", type=int, default=8, help="files of the model")
    parser.add_argument("--json", type=Path, help="write the table here too")
    options = parser.parse_args()
    peer = model_signing()
    quietly(sys.executable, "-m", "compileall", "-q", ROOT / "repro")
    with tempfile.TemporaryDirectory(prefix="repro-bench-") as name:
        folder = Path(name)
        peer_key(folder)
        rows = measure("the demo run", small(folder, peer), options.rounds)
        if options.gib:
            title = f"{options.gib:g} GiB in {options.parts} files"
            commands = large(folder, peer, options.gib, options.parts)
            rows += measure(title, commands, options.large_rounds)
    if options.json:
        options.json.write_text(json.dumps({"rounds": options.rounds, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
