"""Many variants of one small training run, each in a child of its own; prints `<variant> <pid>` for each.

A variant is a name, then settings as `key=value`. What it changes is either harmless (threads, kernels, noise
in the last bit) or a mistake that hardly any exact field of a trace shows.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

WIDTH, HEADS, CONTEXT, BATCH = 32, 2, 24, 4
TEXT = b"It was the best of times, it was the worst of times, it was the age of wisdom. " * 12


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.options = options
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q = q * self.options.get("_scale", 1.0)
        if self.options.get("math"):
            scores = (q @ k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5
            mask = torch.ones(t, t, dtype=torch.bool).tril()
            seen = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        else:
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        p = self.options.get("_p", 0.1)
        x = x + F.dropout(self.out(seen.transpose(1, 2).reshape(b, t, -1)), p)
        kind = "tanh" if self.options.get("_tanh") else "none"
        return x + F.dropout(
            self.down(F.gelu(self.up(self.norm2(x)), approximate=kind)), self.options.get("_p", 0.1)
        )


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT + 1, WIDTH)
        first = {key: value for key, value in options.items() if key.startswith("_")}
        plain = {key: value for key, value in options.items() if not key.startswith("_")}
        self.blocks = nn.ModuleList([Block({**plain, **first}), Block(plain)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)
        self.offset = 0

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1]) + self.offset
        x = self.token(tokens) + self.position(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def noisy(value: Tensor, size: float, draw: torch.Generator) -> Tensor:
    signs = torch.randint(0, 2, value.shape, generator=draw) * 2 - 1
    return value * (1 + size * signs)


def train(options: dict[str, Any]) -> None:
    """One run of `steps` steps."""
    torch.set_num_threads(int(options.get("threads", 1)))
    torch.backends.mkldnn.enabled = not options.get("nomkldnn")
    random.seed(11)  # Python seeds it anew in every child
    torch.manual_seed(11)
    model = Model(options)
    model.offset = int(options.get("shift", 0))
    draw = torch.Generator().manual_seed(int(options.get("draw", 1)))
    with torch.no_grad():
        for weight in model.parameters():
            if size := options.get("weights"):
                weight.copy_(noisy(weight, size, draw))
    if little := options.get("activations"):
        for module in model.modules():
            if not list(module.children()):
                module.register_forward_hook(lambda module, given, out: noisy(out, little, draw))
    if options.get("frozen"):
        model.blocks[1].down.weight.requires_grad_(False)
    rate = 3e-3 * options.get("rate", 1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, foreach=not options.get("loop"))
    text = torch.tensor(list(TEXT))
    order = torch.Generator().manual_seed(5 + int(options.get("data", 0)))
    for step in range(int(options.get("steps", 16))):
        starts = torch.randint(0, len(text) - CONTEXT - 1, (BATCH,), generator=order)
        batch = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])
        optimizer.zero_grad()
        logits = model(batch[:, :-1]).flatten(0, 1)
        labels = batch[:, 1:].flatten()
        if step == options.get("label", -1):
            labels[0] = 7
        loss = F.cross_entropy(logits, labels, label_smoothing=options.get("smooth", 0.0))
        (loss + options.get("l2", 0.0) * model.head.weight.square().sum()).backward()
        for weight in model.parameters():
            if weight.grad is not None and (size := options.get("gradients")):
                weight.grad = noisy(weight.grad, size, draw)
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.get("clip", 1.0))
        if step == options.get("lost", -1):
            for weight in model.parameters():
                weight.grad = None
        if step == options.get("bump", -1):
            with torch.no_grad():
                model.blocks[0].up.weight.mul_(1 + options.get("by", 1e-4))
        optimizer.step()


for line in sys.argv[1:]:
    name, *settings = line.split()
    chosen = {key: float(value) for key, _, value in (one.partition("=") for one in settings)}
    child = os.fork()
    if child == 0:
        train(chosen)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"{name} failed")
    sys.stdout.write(f"{name} {child}\n")
