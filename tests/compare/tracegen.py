"""Small traces made in memory: a pretended training run whose tensors have a few elements each.

A tensor of up to 64 elements is its own sketch, one element a bucket, so that distances are exact.
"""

from __future__ import annotations

import copy
import hashlib
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from repro.trace import PhaseTrace, RankFile, Trace, encode_sketch, hexed, write_line

Events = list[dict[str, Any]]
NAMES = ("blocks.0.weight", "blocks.1.bias", "head.weight")


def digest(*values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:32]


def fp(
    values: Sequence[float], *, full: bool = True, replica: bool = False, dtype: str = "float32"
) -> dict[str, Any]:
    out: dict[str, Any] = {"shape": [len(values)], "dtype": dtype, "n": len(values), "off": 0}
    norm = math.sqrt(sum(value * value for value in values))
    out["l2"] = hexed(norm)
    if replica:
        out["rep"] = 1
    if bad := sum(not math.isfinite(value) for value in values):
        out["bad"] = bad
    if full:
        out["dg"] = digest(*(value.hex() for value in values))
        out["sk"] = encode_sketch([*values, *[0.0] * (64 - len(values))])
    return out


@dataclass
class Config:
    """What a pretended run depends on."""

    seed: int = 7
    lr: float = 3e-4
    activation: str = "GELU(approximate='none')"
    data: str = "corpus"
    data_changed_from: int | None = None
    """Step from which the data read is other data."""
    noise: float = 0.0
    """Relative size of rounding differences in every gradient."""
    noise_seed: int = 0
    weight_noise: float = 0.0
    """Relative size of noise in the weights before the first step."""
    fault: float = 0.0
    """Relative error of every gradient: a change of the computation that no exact field shows."""
    fault_from: int = 1
    world: int = 2
    steps: int = 8
    every: int = 5
    stop_after: int | None = None
    first_step: int = 0
    eval_every: int = 4
    head: dict[str, Any] = field(default_factory=dict)


def run_rank(config: Config, rank: int) -> Events:
    """Play a run of one rank and return its events."""
    draw = random.Random(config.seed)
    noise = random.Random(config.noise_seed)
    params = {name: [draw.uniform(-1, 1) for _ in range(3 + index)] for index, name in enumerate(NAMES)}
    head = {
        "ev": "head",
        "format": "repro-trace/1",
        "rank": rank,
        "world": config.world,
        "argv": ["train.py"],
        "pid": 1000 + config.noise_seed * 10 + rank,
        "python": "3.11.7",
        "torch": {"version": "2.9.0", "threads": 1},
        "devices": [],
        "knobs": {"OMP_NUM_THREADS": "1"},
        "rng_probe": {"cpu": "a" * 64},
        **config.head,
    }
    events: Events = [head]
    rows = [["", "GPT", []], ["act", config.activation.partition("(")[0], [["text", config.activation]]]]
    events.append(
        {
            "ev": "model",
            "cls": "GPT",
            "tree": digest(rows),
            "rows": rows,
            "params": {name: fp(value, replica=rank > 0) for name, value in params.items()},
            "buffers": {},
        }
    )
    for value in params.values():
        value[:] = [element * (1 + config.weight_noise * noise.choice((-1, 1))) for element in value]
    for step in range(1, config.steps + 1):
        if config.stop_after is not None and step > config.stop_after:
            break
        full = step <= 3 or step % config.every == 0 or step == config.steps
        other = config.data_changed_from is not None and step >= config.data_changed_from
        text = f"{config.data}{' changed' if other else ''}"
        batch = digest(text, step, rank, config.seed)
        signal = random.Random(f"{text}{step}{config.activation}{config.seed}")
        grads = {}
        for name, value in params.items():
            scale = 1 + (config.fault if step >= config.fault_from else 0.0)
            grads[name] = [
                (signal.uniform(-1, 1) + 0.1 * element) * scale * (1 + config.noise * noise.uniform(-1, 1))
                for element in value
            ]
            params[name] = [element - config.lr * g for element, g in zip(value, grads[name], strict=True)]
        loss = sum(sum(g * g for g in value) for value in grads.values()) / 10
        norm = math.sqrt(sum(g * g for value in grads.values() for g in value))
        event: dict[str, Any] = {
            "ev": "step",
            "step": step,
            "optimizers": [
                {
                    "i": 0,
                    "cls": "AdamW",
                    "k": step - 1,
                    "hyper": [{"lr": hexed(config.lr), "weight_decay": "0x0.0p+0"}],
                }
            ],
            "inputs": [[[2, 4], "int64", batch]],
            "loss": [{"bits": hexed(_single(loss)), "dtype": "float32"}],
            "grad_norm": hexed(norm),
            "rng": {"torch": digest("torch", config.seed, step), "python": digest("python", config.seed)},
            "grads": {name: fp(value, full=full, replica=rank > 0) for name, value in grads.items()},
        }
        if full:
            event["params"] = {name: fp(value, replica=rank > 0) for name, value in params.items()}
        events += [
            event,
            {"ev": "time", "step": step, "s": hexed(noise.random()), "data_wait_s": hexed(noise.random())},
        ]
        events.append(
            {
                "ev": "mem",
                "step": step,
                "rss_peak_bytes": noise.randrange(1 << 30),
                "allocated_peak_bytes": None,
            }
        )
        if step % config.eval_every == 0:
            answer = [sum(value) for value in params.values()]
            events.append(
                {
                    "ev": "eval",
                    "after": step,
                    "forwards": 1,
                    "inputs": "sha256:" + digest(config.data) * 2,
                    "outputs": [[[3], "float32", digest(*answer)]],
                    "sk": encode_sketch([*answer, *[0.0] * 13]),
                    "scalars": [],
                }
            )
            events.append(
                {
                    "ev": "save",
                    "after": step,
                    "api": "torch.save",
                    "index": 0,
                    "tensors": {
                        f"model/{name}": [[len(value)], "float32", fp(value)["dg"]]
                        for name, value in params.items()
                    },
                    "rest": digest("rest", step),
                    "bytes": 1000,
                }
            )
    last = min(config.steps, config.stop_after or config.steps)
    events.append(
        {
            "ev": "end",
            "step": last,
            "rng": {"torch": digest("torch", config.seed, last)},
            "params": {
                name: {k: v for k, v in fp(value, replica=rank > 0).items() if k != "sk"}
                for name, value in params.items()
            },
            **({"stopped": True} if config.stop_after else {}),
        }
    )
    return events


def _single(value: float) -> float:
    """Round to float32, as a loss of that dtype is."""
    import struct

    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def lines_of(events: Iterable[dict[str, Any]]) -> list[bytes]:
    return [write_line(event) for event in events]


def rank_file(rank: int, lines: Sequence[bytes]) -> RankFile:
    kept = tuple(lines)
    opener: Callable[[], Iterable[bytes]] = lambda: iter(kept)  # noqa: E731
    return RankFile(rank=rank, path=f"trace/full/rank-{rank}.jsonl", digest="", size=0, lines=opener)


def phase_of(ranks: Sequence[Events], *, name: str = "full", first_step: int = 0) -> PhaseTrace:
    files = tuple(rank_file(rank, lines_of(events)) for rank, events in enumerate(ranks))
    return PhaseTrace(name=name, first_step=first_step, world_size=len(ranks), ranks=files)


def ranks_of(config: Config) -> list[Events]:
    return [run_rank(config, rank) for rank in range(config.world)]


def trace_of(config: Config, calibration: dict[str, Config] | None = None, **others: Config) -> Trace:
    """A trace with the phase `full`, and others by name."""
    phases = [phase_of(ranks_of(config))]
    others.update(calibration or {})
    phases += [
        phase_of(ranks_of(other), name=name, first_step=other.first_step) for name, other in others.items()
    ]
    return Trace(phases=tuple(phases))


def edited(config: Config, edit: Callable[[list[Events]], None]) -> Trace:
    """A trace of one phase whose events were changed by hand."""
    ranks = copy.deepcopy(ranks_of(config))
    edit(ranks)
    return Trace(phases=(phase_of(ranks),))


def step_event(events: Events, step: int) -> dict[str, Any]:
    return next(event for event in events if event["ev"] == "step" and event["step"] == step)


__all__ = [
    "NAMES",
    "Config",
    "Events",
    "digest",
    "edited",
    "fp",
    "lines_of",
    "phase_of",
    "rank_file",
    "ranks_of",
    "replace",
    "run_rank",
    "step_event",
    "trace_of",
]
