"""Propose what a `repro.yaml` should say, from the files that a project has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Proposal", "Question", "propose"]

_TRAINING = re.compile(r"\b(optimizer|optim\.|\.backward\(|Trainer\()")
_MAIN = re.compile(r"__name__\s*==\s*[\"']__main__[\"']")
_REQUIREMENTS = ("requirements.in", "requirements.txt")
_MUTABLE = (
    (re.compile(r"from_pretrained\(\s*[\"']([^\"']+)[\"']"), "model", "models"),
    (re.compile(r"load_dataset\(\s*[\"']([^\"']+)[\"']"), "data set", "datasets"),
)
_BASE = "registry.example/python:3.11"
_NAME = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Question:
    """What only a person can decide, and about which key."""

    key: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What to write, and what only a person can decide."""

    text: str
    """The whole file, with comments."""
    required: dict[str, Any]
    """What no `repro.yaml` can do without, as nested members."""
    open_questions: tuple[Question, ...]


def _script(sources: Mapping[str, str]) -> str | None:
    """The script that trains: it has a main block and an optimizer; the shallowest, `train` first."""
    candidates = [path for path, text in sources.items() if _TRAINING.search(text)]
    ranked = sorted(
        candidates,
        key=lambda path: (
            not _MAIN.search(sources[path]),
            "train" not in path.rsplit("/", 1)[-1],
            path.count("/"),
            path,
        ),
    )
    return ranked[0] if ranked else None


def _requirements(sources: Mapping[str, str]) -> str | None:
    return next((name for name in _REQUIREMENTS if name in sources), None)


def _mutable(sources: Mapping[str, str]) -> list[Question]:
    told = []
    for path, text in sorted(sources.items()):
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what, section in _MUTABLE:
                if found := pattern.search(line):
                    text = f"{path}:{number} loads the {what} {found[1]!r}: name it under {section}"
                    told.append(Question(f"{section}.{found[1]}", text))
    return told


def _name(folder: str) -> str:
    return _NAME.sub("-", folder.lower()).strip("-._")[:64] or "pilot"


def propose(folder: str, sources: Mapping[str, str], *, accelerators: tuple[str, ...]) -> Proposal:
    """Say what a `repro.yaml` should hold.

    Args:
        folder: name of the project's folder.
        sources: text of its Python files, and of its requirement files, by POSIX path.
        accelerators: which to name.
    """
    script, requirements = _script(sources), _requirements(sources)
    questions = _mutable(sources)
    if script is None:
        text = "no script that trains was found: write pilot.command and pilot.source"
        questions.append(Question("pilot.command", text))
    if requirements is None:
        text = "no requirements.in or requirements.txt was found: write one and name it"
        questions.append(Question("accelerators", text))
    questions += [
        Question("pilot.steps", "pilot.steps must be the number of optimizer steps that the command takes"),
        Question("pilot", "pilot.resume and pilot.checkpoint are left out: with them, restore is tested too"),
        Question("accelerators", "base is an example: name the image that your Dockerfile stands on"),
    ]
    code = sorted(path.split("/", 1)[0] for path in sources if path.endswith(".py"))
    source = list(dict.fromkeys(code)) or ["train.py"]
    required = {
        "version": 1,
        "name": _name(folder),
        "pilot": {"command": ["python", script or "train.py"], "source": source, "steps": 20},
        "seed": 0,
        "accelerators": {
            name: {
                "dockerfile": f"Dockerfile.{name}",
                "base": _BASE,
                "requirements": [requirements or "requirements.in"],
            }
            for name in accelerators
        },
    }
    lines = [
        "# What is to be repeated. Mutable references live here and nowhere else; `repro lock` pins them.",
        "version: 1",
        f"name: {required['name']}",
        "pilot:",
        f"  command: [python, {script or 'train.py'}]",
        '  # resume: [python, train.py, --resume, "{checkpoint}"]',
        f"  source: [{', '.join(source)}]",
        "  steps: 20",
        "  # checkpoint: {path: out/checkpoint, at_step: 10}",
        "  outputs: [out]                # the only folders the pilot may write to",
        "  timeout: 30m",
        "seed: 0",
        "determinism: strict             # strict, warn or off",
        "# models:\n#   - {name: base, hub: org/model, revision: main}",
        "# datasets:\n#   - {name: corpus, path: data/corpus.txt}",
        "accelerators:",
    ]
    for name in accelerators:
        lines += [
            f"  {name}:",
            f"    dockerfile: Dockerfile.{name}",
            f'    base: "{_BASE}"',
            f"    requirements: [{requirements or 'requirements.in'}]",
        ]
    lines += ["tolerance:", "  same: bitwise                 # on an equal stack", "  across: calibrated"]
    return Proposal(text="\n".join(lines) + "\n", required=required, open_questions=tuple(questions))
