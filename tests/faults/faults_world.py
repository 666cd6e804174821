"""A project so small that it can be locked, captured and replayed hundreds of times."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.e2e_world import ROOT, make_keys, succeed

SPEC = """\
version: 1
name: tiny
pilot:
  command: [python, train.py]
  resume: [python, train.py, "{checkpoint}"]
  source: [train.py]
  steps: 4
  checkpoint: {path: out/checkpoint.pt, at_step: 2}
  timeout: 5m
seed: 7
datasets:
  - {name: corpus, path: corpus.txt}
accelerators:
  cpu: {dockerfile: Dockerfile.cpu, base: "repro-base:bookworm", requirements: [requirements.in]}
"""

TRAIN = """\
import os
import sys

import torch

torch.manual_seed(7)
text = open("corpus.txt", "rb").read()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
first = 0
if len(sys.argv) > 1:
    saved = torch.load(sys.argv[1])
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]
for step in range(first, 4):
    values = torch.tensor(list(text[step * 8 : step * 8 + 8]), dtype=torch.float32) / 256
    loss = (model(values) - 1.0).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 1:
        os.makedirs("out", exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}
        torch.save(state, "out/checkpoint.pt")
"""


@dataclass(frozen=True, slots=True)
class Tiny:
    """A project, a signed run of it, the key that signed, and a policy that trusts it."""

    project: Path
    run: Path
    key: Path
    trust: Path

    @property
    def second_key(self) -> Path:
        """Another key, which the policy does not know."""
        return self.key.with_name("second.key")


def tiny_in(folder: Path) -> Tiny:
    """Where everything lies below a folder."""
    project = folder / "project"
    return Tiny(
        project, project / "manifests" / "tiny.cpu", folder / "keys" / "train.key", folder / "trust.yaml"
    )


def write_project(project: Path) -> None:
    """The project as a person would have written it, not yet locked."""
    project.mkdir(parents=True)
    shutil.copy(ROOT / "Dockerfile.cpu", project)
    (project / "repro.yaml").write_text(SPEC, encoding="utf-8")
    (project / "train.py").write_text(TRAIN, encoding="utf-8")
    (project / "requirements.in").write_text("torch==2.13.0\n", encoding="utf-8")
    (project / "corpus.txt").write_text(
        "In the beginning was the word, and it was repeatable.\n", encoding="utf-8"
    )


def locked_tiny(folder: Path) -> Tiny:
    """The project, locked, and two keys; no run yet."""
    tiny = tiny_in(folder)
    write_project(tiny.project)
    make_keys(folder)
    succeed("keys", "new", tiny.second_key.with_suffix(""), "--no-passphrase")
    succeed("lock", "-C", tiny.project)
    return tiny


def captured_tiny(folder: Path) -> Tiny:
    """The project, locked, and a signed run of it without an image."""
    tiny = locked_tiny(folder)
    succeed("capture", "-C", tiny.project, "--key", tiny.key, "--runtime", "host")
    return tiny


def reference_run(folder: Path) -> Tiny:
    """The signed run of the reference pilot that this repository keeps, without its project."""
    run = folder / "runs" / "pilot.cpu"
    shutil.copytree(ROOT / "manifests" / "pilot.cpu", run)
    for name in ("keys", "trust.yaml"):
        (shutil.copytree if name == "keys" else shutil.copy)(ROOT / "manifests" / name, folder / name)
    tiny = Tiny(
        folder / "none", run, next((folder / "keys").glob("*.pub")).with_suffix(".key"), folder / "trust.yaml"
    )
    succeed("keys", "new", tiny.second_key.with_suffix(""), "--no-passphrase")
    return tiny
