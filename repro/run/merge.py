"""Raw trace files, one per process, become one file per rank."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath

from repro import recorder
from repro.digest import digest_stream
from repro.errors import RunError
from repro.lock import FileLock
from repro.trace import Event, event_name

__all__ = ["merge"]


def merge(
    folder: Path,
    phase: str,
    nonce: str,
    *,
    command: Sequence[str] = (),
    only_end: bool = False,
    accelerator: str = "cpu",
) -> tuple[tuple[FileLock, ...], int, int]:
    """Keep the file of each rank that took steps, below `raw/<phase>`, as `trace/<phase>/rank-<n>.jsonl`.

    Args:
        folder: holds `raw`, and will hold `trace`.
        phase: name of the phase.
        nonce: comes back in the head of every process of this run.
        command: what ran, to say why no process was recorded.
        only_end: whether nothing but the end was recorded; no step is counted then.
        accelerator: what every rank must have trained on.

    Returns:
        the files with paths relative to `folder`, the steps of each rank, the world size.

    Raises:
        RunError: `recorder-absent`, `recorder-changed`, `steps-absent`, `accelerator-unused`,
            `trace-ambiguous`, `ranks-missing` or `ranks-disagree`.
    """
    raw, target = folder / "raw" / phase, folder / "trace" / phase
    heads = 0
    ranks: dict[int, tuple[Path, int, int]] = {}
    for path in sorted(raw.glob("proc-*.jsonl")):
        head, steps = _survey(path, b"end" if only_end else b"step")
        heads += head is not None and head.get("nonce") == nonce
        if head is None or steps == 0:
            continue
        if head["recorder"] != recorder.digest():
            raise RunError(
                "recorder-changed",
                "the recorder's own files changed while the pilot ran",
                where=path.name,
                remedy="run again, with an installation of repro that nobody is changing",
            )
        if accelerator != "cpu" and not head.get("devices"):
            raise RunError(
                "accelerator-unused",
                f"rank {head['rank']} took its first step without a device: it trained on the processor",
                where=path.name,
                remedy="let the pilot stop where torch.cuda.is_available() is false; "
                "`repro run -- python -c 'import torch; torch.ones(1).cuda()'` says why it is",
            )
        if (rank := int(head["rank"])) in ranks:
            raise RunError(
                "trace-ambiguous", f"two processes took steps as rank {rank}", where=str(path.name)
            )
        ranks[rank] = (path, steps, int(head["world"]))
    if not heads:
        raise RunError(
            "recorder-absent",
            f"the recorder did not load in any process{_why_absent(command)}",
            remedy="start the pilot with a Python that reads PYTHONPATH (no -E, -I or -S) and has torch",
        )
    if not ranks:
        raise RunError(
            "steps-absent", "no optimizer step was seen", remedy="let the pilot train at least one step"
        )
    world = max(size for _, _, size in ranks.values())
    if sorted(ranks) != list(range(world)):
        raise RunError("ranks-missing", f"ranks {sorted(ranks)} were recorded of a world of {world}")
    if len(counts := {steps for _, steps, _ in ranks.values()}) > 1:
        raise RunError("ranks-disagree", f"ranks recorded different numbers of steps: {sorted(counts)}")
    target.mkdir(parents=True)
    files = []
    for rank, (path, _, _) in sorted(ranks.items()):
        place = target / f"rank-{rank}.jsonl"
        shutil.copyfile(path, place)
        with place.open("rb") as stream:
            digest, size = digest_stream(stream)
        files.append(FileLock(path=f"trace/{phase}/{place.name}", size=size, digest=digest))
    return tuple(files), 0 if only_end else counts.pop(), world


def _why_absent(command: Sequence[str]) -> str:
    """Say which option made Python ignore the recorder, empty where none is seen."""
    for before, word in pairwise(command):
        if PurePosixPath(before).name.startswith("python") and re.fullmatch(
            r"-[A-Za-z]*[EIS][A-Za-z]*", word
        ):
            return f": `{before} {word}` ignores PYTHONPATH or start-up hooks"
    return ""


def _survey(path: Path, kind: bytes) -> tuple[Event | None, int]:
    """Return the last head before the first event of a kind, and how many events of that kind there are."""
    head: Event | None = None
    steps = 0
    with path.open("rb") as stream:
        for line in stream:
            name = event_name(line)
            if name == b"head" and not steps:
                head = json.loads(line)
            steps += name == kind
    return head, steps
