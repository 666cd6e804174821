"""Train a small language model in any layout: `torchrun … train.py --config configs/ddp.yaml [--resume DIR]`.

Every layout sees the same global batches and starts from the same weights, so that their numbers can be
compared. Knows nothing of what records it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from layouts import LAYOUTS, Batch, Config

HERE = Path(__file__).parent
DEFAULTS: Config = {
    "layout": "single",
    "precision": "fp32",
    "activation_checkpointing": False,
    "accumulate": 1,
    "batch": 8,
    "steps": 8,
    "checkpoint": 4,
    "seed": 20261130,
    "rate": 1e-3,
    "model": {"width": 64, "layers": 4, "heads": 4, "context": 64},
    "ddp": {},
    "corpus": "../pilot/data/corpus.txt",
    "out": "out",
}


def join_world() -> torch.device:
    """Join the peers that torchrun announces; return this rank's device."""
    device, backend = torch.device("cpu"), "gloo"
    if torch.cuda.is_available():
        device, backend = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))), "nccl"
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend)
    return device


def batch_of(corpus: torch.Tensor, config: Config, step: int) -> Batch:
    """Return windows `[batch, context]` of the corpus, and the byte after each; the step decides which."""
    context = config["model"]["context"]
    draw = torch.Generator().manual_seed(config["seed"] * 1000 + step)
    starts = torch.randint(0, len(corpus) - context - 1, (config["batch"],), generator=draw)
    windows = torch.stack([corpus[start : start + context + 1].long() for start in starts.tolist()])
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def train(config: Config, resume: Path | None) -> None:
    """Run every step that is left, and save after the one that the configuration names."""
    device = join_world()
    layout = LAYOUTS[config["layout"]](config, device)
    optimizer = torch.optim.AdamW(layout.model.parameters(), lr=config["rate"])
    done = layout.load(resume, optimizer) if resume else 0
    corpus = torch.frombuffer(bytearray((HERE / config["corpus"]).read_bytes()), dtype=torch.uint8)
    for step in range(done + 1, config["steps"] + 1):
        optimizer.zero_grad()
        loss = layout.gradients(batch_of(corpus, config, step))
        layout.scaler.step(optimizer)
        layout.scaler.update()
        if loss is not None:
            print(f"step {step} loss {loss:.6f}", flush=True)
        if step % 4 == 0:
            layout.evaluate(batch_of(corpus, config, 0))
        if step == config["checkpoint"]:
            layout.save(Path(config["out"]) / "checkpoint", optimizer, step)
    if dist.is_initialized():
        dist.destroy_process_group()


def read_config(path: Path, changes: list[str]) -> Config:
    """Read a configuration over the defaults; `key=value` changes it further."""
    config: dict[str, Any] = {**DEFAULTS, **(yaml.safe_load(path.read_text(encoding="utf-8")) or {})}
    for change in changes:
        key, _, value = change.partition("=")
        config[key] = yaml.safe_load(value)
    if unknown := config.keys() - DEFAULTS.keys():
        raise SystemExit(f"{path}: unknown settings: {', '.join(sorted(unknown))}")
    return config


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("changes", nargs="*", metavar="key=value")
    chosen = parser.parse_args()
    train(read_config(chosen.config, chosen.changes), chosen.resume)
