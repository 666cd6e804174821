"""A small transformer on bytes: attention, dropout, AdamW, clipping, warm-up. See `variants.py`."""

# mypy: ignore-errors
from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn
from variants import Options, Pilot, main

WIDTH, HEADS, CONTEXT, BATCH = 32, 2, 24, 4
TEXT = b"It was the best of times, it was the worst of times, it was the age of wisdom. " * 12


class Block(nn.Module):
    """One layer; only the first one of a model has the faults that are asked for of one layer."""

    def __init__(self, options: Options, first: bool) -> None:
        super().__init__()
        own = options if first else {}
        self._math = bool(options.get("math"))
        self._scale = own.get("scale", 1.0)
        self._p = own.get("dropout", 0.1)
        self._kind = "tanh" if own.get("tanh") else "none"
        self.norm1 = nn.LayerNorm(WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH, eps=own.get("normeps", 1e-5))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, time, width]` to the same."""
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q = q * self._scale
        if self._math:
            scores = (q @ k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5
            mask = torch.ones(t, t, dtype=torch.bool).tril()
            seen = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        else:
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(seen.transpose(1, 2).reshape(b, t, -1)), self._p, self.training)
        y = self.down(F.gelu(self.up(self.norm2(x)), approximate=self._kind))
        return x + F.dropout(y, self._p, self.training)


class Model(nn.Module):
    """Two layers over bytes."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT + 1, WIDTH)
        self.blocks = nn.ModuleList([Block(options, True), Block(options, False)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)
        self.offset = int(options.get("shift", 0))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map bytes `[batch, time]` to logits `[batch, time, 256]`."""
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]) + self.offset)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(order: torch.Generator, options: Options) -> tuple[Tensor, Tensor]:
    """Windows of the text and the bytes that follow."""
    text = torch.tensor(list(TEXT))
    starts = torch.randint(0, len(text) - CONTEXT - 1, (BATCH,), generator=order)
    windows = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])
    if options.get("turn"):
        windows = windows.flip(0)
    return windows[:, :-1].clone(), windows[:, 1:].flatten()


def optimizer(parameters: Any, options: Options) -> torch.optim.Optimizer:
    """AdamW."""
    return torch.optim.AdamW(
        parameters,
        lr=3e-3 * options.get("rate", 1.0),
        betas=(options.get("beta1", 0.9), options.get("beta2", 0.999)),
        eps=options.get("eps", 1e-8),
        weight_decay=options.get("decay", 0.01),
        foreach=not options.get("loop"),
    )


if __name__ == "__main__":
    main(Pilot(Model, batch, optimizer, 1.0), sys.argv[1:])
