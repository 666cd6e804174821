"""Propose a `repro.yaml` for a project that has none, from the files it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Proposal", "propose"]

_TRAINING = re.compile(r"\b(optimizer|optim\.|\.backward\(|Trainer\()")
_MAIN = re.compile(r"__name__\s*==\s*[\"']__main__[\"']")
_REQUIREMENTS = ("requirements.in", "requirements.txt")
_MUTABLE = (
    (re.compile(r"from_pretrained\(\s*[\"']([^\"']+)[\"']"), "model", "models"),
    (re.compile(r"load_dataset\(\s*[\"']([^\"']+)[\"']"), "data set", "datasets"),
)
_NAME = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """Text to write, and what only a person can decide."""

    text: str
    open_questions: tuple[str, ...]


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


def _mutable(sources: Mapping[str, str]) -> list[str]:
    told = []
    for path, text in sorted(sources.items()):
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what, section in _MUTABLE:
                if found := pattern.search(line):
                    told.append(f"{path}:{number} loads the {what} {found[1]!r}: name it under {section}")
    return told


def _name(folder: str) -> str:
    return _NAME.sub("-", folder.lower()).strip("-._")[:64] or "pilot"


def propose(folder: str, sources: Mapping[str, str], *, accelerators: tuple[str, ...]) -> Proposal:
    """Write a first `repro.yaml`.

    Args:
        folder: name of the project's folder.
        sources: text of its Python files, and of its requirement files, by POSIX path.
        accelerators: which to name.
    """
    script, requirements = _script(sources), _requirements(sources)
    questions = _mutable(sources)
    if script is None:
        questions.append("no script that trains was found: write pilot.command and pilot.source")
    if requirements is None:
        questions.append("no requirements.in or requirements.txt was found: write one and name it")
    questions += [
        "pilot.steps must be the number of optimizer steps that the command takes",
        "pilot.resume and pilot.checkpoint are left out: with them, restore is tested too",
        "base is an example: name the image that your Dockerfile stands on",
    ]
    code = sorted(path.split("/", 1)[0] for path in sources if path.endswith(".py"))
    lines = [
        "# What is to be repeated. Mutable references live here and nowhere else; `repro lock` pins them.",
        "version: 1",
        f"name: {_name(folder)}",
        "pilot:",
        f"  command: [python, {script or 'train.py'}]",
        '  # resume: [python, train.py, --resume, "{checkpoint}"]',
        f"  source: [{', '.join(dict.fromkeys(code)) or 'train.py'}]",
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
            '    base: "registry.example/python:3.11"',
            f"    requirements: [{requirements or 'requirements.in'}]",
        ]
    lines += ["tolerance:", "  same: bitwise                 # on an equal stack", "  across: calibrated"]
    return Proposal(text="\n".join(lines) + "\n", open_questions=tuple(questions))
