"""The model that every layout trains: a small decoder-only transformer over bytes."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

BYTES = 256


class Block(nn.Module):
    """Causal self-attention, then a feed-forward layer; each normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, time, width]` to the same shape."""
        batch, length, width = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.widen(self.forward_norm(x))))


class LanguageModel(nn.Module):
    """Bytes in, logits of the next byte out; or one stage of it, which begins or ends in the middle.

    Args:
        stage: which blocks it holds, first and one past the last; None holds all.
        again: compute activations again in the backward pass instead of keeping them.
        devices: where the blocks lie, in equal parts; one device holds everything.
    """

    def __init__(
        self,
        width: int,
        layers: int,
        heads: int,
        context: int,
        *,
        again: bool = False,
        devices: tuple[torch.device, ...] = (torch.device("cpu"),),
    ) -> None:
        super().__init__()
        self.again, self.devices = again, devices
        self.token: nn.Module | None = nn.Embedding(BYTES, width)
        self.position: nn.Module | None = nn.Embedding(context, width)
        self.blocks = nn.ModuleDict({str(number): Block(width, heads) for number in range(layers)})
        self.norm: nn.Module | None = nn.LayerNorm(width)
        self.head: nn.Module | None = nn.Linear(width, BYTES)
        for number, block in self.blocks.items():
            block.to(self._device(int(number)))
        for module, device in ((self.token, 0), (self.position, 0), (self.norm, -1), (self.head, -1)):
            module.to(devices[device])

    def _device(self, number: int) -> torch.device:
        return self.devices[number * len(self.devices) // max(len(self.blocks), 1)]

    def stage(self, number: int, of: int) -> LanguageModel:
        """Keep one of `of` stages, with the weights and names of the whole; everything else goes."""
        layers = len(self.blocks)
        kept = range(number * layers // of, (number + 1) * layers // of)
        for name in [name for name in self.blocks if int(name) not in kept]:
            del self.blocks[name]
        if number > 0:
            self.token = self.position = None
        if number < of - 1:
            self.norm = self.head = None
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Map bytes `[batch, time]`, or activations `[batch, time, width]`, to logits or activations."""
        if self.token is not None and self.position is not None:
            x = x.to(self.devices[0])
            x = self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))
        for number, block in self.blocks.items():
            if len(self.devices) > 1:
                x = x.to(self._device(int(number)))
            x = checkpoint(block, x, use_reentrant=False) if self.again and self.training else block(x)
        return self.head(self.norm(x)) if self.head is not None and self.norm is not None else x
