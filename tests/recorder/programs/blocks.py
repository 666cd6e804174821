"""A small model of named blocks, trained once for each fault, each in a child: `blocks.py FOLDER FAULT…`."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

STEPS = 3


class Scaled(torch.autograd.Function):  # type: ignore[misc]
    """The identity, whose gradient is a little too large."""

    @staticmethod
    def forward(_ctx: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_ctx: object, grad: Tensor) -> Tensor:
        return grad * (1 + 1e-6)


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, number: int, fault: str) -> None:
        super().__init__()
        eps = 1e-6 if (fault, number) == ("eps", 1) else 1e-5
        self.norm = nn.LayerNorm(16, eps=eps)
        self.fc = nn.Linear(16, 16)
        self.act = nn.GELU(approximate="tanh" if (fault, number) == ("gelu", 2) else "none")
        self.drop = nn.Dropout(0.2 if (fault, number) == ("dropout", 1) else 0.1)
        self.backward_fault = (fault, number) == ("backward", 1)
        self.own_fault = (fault, number) == ("own", 0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        if self.backward_fault:
            y = Scaled.apply(y)
        y = self.drop(self.act(self.fc(y)))
        return x + (y * 1.0001 if self.own_fault else y)


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.blocks = nn.ModuleList(Block(number, fault) for number in range(3))
        self.head = nn.Linear(16, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(fault: str, result: Path) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Model(fault)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, weight_decay=0.02 if fault == "decay" else 0.01
    )
    generator = torch.Generator().manual_seed(2)
    for step in range(1, STEPS + 1):
        tokens = torch.randint(0, 32, (4, 9), generator=generator)
        if fault == "token" and step == 2:
            tokens[0, 0] = (tokens[0, 0] + 1) % 32
        if fault == "weight" and step == 2:
            with torch.no_grad():
                model.blocks[0].fc.weight[0, 0] += 1e-4
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            model(tokens)
        model.train()
    state = hashlib.sha256()
    for value in (*model.state_dict().values(), torch.get_rng_state()):
        state.update(bytes(value.contiguous().flatten().view(torch.uint8).tolist()))
    result.write_text(json.dumps({"pid": os.getpid(), "state": state.hexdigest()}))


def main(folder: Path, faults: list[str]) -> None:
    for fault in faults:
        child = os.fork()
        if child == 0:
            train(fault, folder / f"{fault}.json")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, fault


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
