"""A small training program that can be changed in one place, stopped, and resumed well or badly."""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--seed", type=int, default=3)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--decay", type=float, default=0.01)
parser.add_argument("--gelu", default="none")
parser.add_argument("--smooth", type=float, default=0.0)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--text", type=Path, required=True)
parser.add_argument("--save", type=Path)
parser.add_argument("--resume", type=Path)
parser.add_argument("--forget", default="")
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
random.seed(args.seed)
text = torch.tensor(list(args.text.read_bytes()))
model = nn.Sequential(
    nn.Embedding(256, 32),
    nn.Flatten(),
    nn.Linear(16 * 32, 96),
    nn.GELU(approximate=args.gelu),
    nn.Dropout(0.1),
    nn.Linear(96, 256),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.decay)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 0.9**done)
order = torch.randperm(len(text) - 17, generator=torch.Generator().manual_seed(args.seed)).tolist()
first = 0
if args.resume:
    state: dict[str, Any] = torch.load(args.resume)
    model.load_state_dict(state["model"])
    if args.forget != "optimizer":
        optimizer.load_state_dict(state["optimizer"])
    if args.forget != "scheduler":
        scheduler.load_state_dict(state["scheduler"])
    if args.forget != "rng":
        torch.set_rng_state(state["rng"])
    first = state["step"] if args.forget != "data" else 0
    args.steps += first - state["step"]
for step in range(first, args.steps):
    places = order[step * 8 : step * 8 + 8]
    batch = torch.stack([text[place : place + 17] for place in places])
    optimizer.zero_grad()
    logits = model(batch[:, :16])
    nn.functional.cross_entropy(logits, batch[:, 16], label_smoothing=args.smooth).backward()
    optimizer.step()
    scheduler.step()
    if args.save and step + 1 == 4:
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "rng": torch.get_rng_state(),
                "step": step + 1,
            },
            args.save,
        )
