"""Real projects, real images, real runs: what the end-to-end tests share."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ENTRY = "import sys; from repro.cli import main; sys.argv[0] = 'repro'; main()"
TINY_STEPS, TINY_CHECKPOINT = 6, 3

Result = subprocess.CompletedProcess[str]


def repro(*arguments: str | Path, **environment: str) -> Result:
    """Run the command line as a process of its own, as a person would."""
    return subprocess.run(
        [sys.executable, "-c", ENTRY, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def succeed(*arguments: str | Path, **environment: str) -> str:
    """The same, where anything but success is a failed test."""
    result = repro(*arguments, **environment)
    assert result.returncode == 0, f"{arguments}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def replace_once(path: Path, old: str, new: str) -> None:
    """Edit a file; a change that changes nothing would prove nothing."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path}: {old!r} stands {text.count(old)} times"
    path.write_text(text.replace(old, new), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Signed:
    """A captured run, the project it came from, and a reader's policy."""

    project: Path
    run: Path
    trust: Path
    key: Path

    def copy(self, to: Path) -> Path:
        """A copy of the project, to be changed."""
        shutil.copytree(self.project, to)
        return to

    def replay(self, project: Path, *arguments: str | Path) -> tuple[int, dict[str, Any]]:
        """Replay with a project as it stands; exit code and verdict."""
        result = repro("replay", self.run, "--trust", self.trust, "-C", project, "--json", *arguments)
        assert result.stdout.strip(), result.stderr
        answer = json.loads(result.stdout)
        assert "error" not in answer, answer
        verdict: dict[str, Any] = answer["verdict"]
        return result.returncode, verdict


def make_keys(folder: Path) -> tuple[Path, Path]:
    """A signer without a passphrase, and a policy that trusts it."""
    succeed("keys", "new", folder / "keys" / "train", "--no-passphrase")
    succeed("keys", "trust", folder / "trust.yaml", folder / "keys" / "train.pub", "--principal", "train")
    return folder / "keys" / "train.key", folder / "trust.yaml"


SMALL_SPEC = """\
version: 1
name: small
pilot:
  command: [{command}]
  source: [pilot.py]
  steps: 1
  timeout: {timeout}
seed: 1
accelerators:
  cpu: {{dockerfile: Dockerfile.cpu, base: "{base}", requirements: [requirements.in]}}
"""
