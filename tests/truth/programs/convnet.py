"""A small convolutional network on pictures: batch norm, dropout, SGD with momentum. See `variants.py`."""

# mypy: ignore-errors
from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from variants import Options, Pilot, main

SIDE, CLASSES, BATCH = 12, 7, 16


class Model(nn.Module):
    """Two convolutions, then two linear layers."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._scale = options.get("scale", 1.0)
        act: nn.Module = nn.GELU(approximate="tanh" if options.get("tanh") else "none")
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8, eps=options.get("normeps", 1e-5), momentum=options.get("running", 0.1)),
            act,
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        )
        self.drop = nn.Dropout(options.get("dropout", 0.1))
        self.hidden = nn.Linear(16 * (SIDE // 2) ** 2, 32)
        self.head = nn.Linear(32, CLASSES)
        self._last = bool(options.get("channelslast"))
        if self._last:
            self.to(memory_format=torch.channels_last)

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures `[batch, 3, side, side]` to logits `[batch, 1, classes]`."""
        if self._last:
            pictures = pictures.contiguous(memory_format=torch.channels_last)
        x = self.features(pictures) * self._scale
        return self.head(torch.relu(self.hidden(self.drop(x.flatten(1))))).unsqueeze(1)


def batch(order: torch.Generator, options: Options) -> tuple[Tensor, Tensor]:
    """Noise with a stripe where the label says."""
    labels = torch.randint(0, CLASSES, (BATCH,), generator=order)
    # Not randn: what it draws depends on the processor's instruction set, and is other data then.
    pictures = 3.5 * torch.rand(BATCH, 3, SIDE, SIDE, generator=order) - 1.75
    pictures[torch.arange(BATCH), :, labels] += 1.5
    if shift := int(options.get("shift", 0)):
        pictures = pictures.roll(shift, 2)
    return (pictures.flip(0), labels.flip(0)) if options.get("turn") else (pictures, labels)


def optimizer(parameters: Any, options: Options) -> torch.optim.Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(
        parameters,
        lr=5e-2 * options.get("rate", 1.0),
        momentum=options.get("beta1", 0.9),
        weight_decay=options.get("decay", 1e-4),
        foreach=not options.get("loop"),
    )


if __name__ == "__main__":
    main(Pilot(Model, batch, optimizer, 5.0), sys.argv[1:])
