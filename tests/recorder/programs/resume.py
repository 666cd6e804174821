"""A training that is interrupted and goes on, with one bug at a time in how it does. Knows no recorder.

Run as `resume.py FOLDER WAY...`: `full` comes first and saves after its eighth step; every other way
starts from there in a process of its own. Each leaves `FOLDER/<way>.pid`.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import random
import sys
import traceback
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # the first optimizer would import it, in every child anew
from torch import nn
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(sys.argv[1])
STEPS, AT, PER_EPOCH = 14, 8, 6
STATE = FOLDER / "state.pt"


class Samples(Dataset):
    """Rows; a worker adds noise that its seed and the row decide."""

    def __init__(self) -> None:
        self.x = torch.randn(24, 6, generator=torch.Generator().manual_seed(3))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i):
        if torch.utils.data.get_worker_info() is None:
            return self.x[i]
        noise = torch.Generator().manual_seed(torch.initial_seed() % 2**31 + i)
        return self.x[i] + 0.01 * torch.randn(6, generator=noise)


class Training:
    def __init__(self, way: str) -> None:
        self.way = way
        self.model = nn.Sequential(
            nn.Linear(6, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.2),
            nn.Linear(8, 8),
            nn.Linear(8, 8),
            nn.Linear(8, 1),
        )
        self.average = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        )
        trained = list(self.model.parameters())
        if way == "order of parameters":
            a, b = (next(n for n, p in enumerate(trained) if p is self.model[at].weight) for at in (3, 4))
            trained[a], trained[b] = trained[b], trained[a]
        decay = 0.0 if way == "settings" else 0.1
        self.optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=decay)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.9**step)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=3)
        self.step = self.epoch = self.used = 0
        self.workers = 1 if "worker" in way else 0

    def batches(self):
        while True:
            order = torch.randperm(24, generator=torch.Generator().manual_seed(self.epoch)).tolist()
            rows = [order[at : at + 2] for at in range(0, 24, 2)][self.used :]
            base = torch.Generator()
            base.manual_seed(99 if self.way == "worker seeds" else self.epoch)
            for x in DataLoader(Samples(), batch_sampler=rows, num_workers=self.workers, generator=base):
                self.used += 1
                yield x
            self.epoch, self.used = self.epoch + 1, 0

    def take(self, x) -> None:
        x = x * (1 + 0.1 * np.random.rand()) + 0.1 * random.random()
        self.scaler.scale(self.model(x).square().mean() / 2).backward()

    def train(self) -> None:
        data = self.batches()
        if self.way == "accumulation":
            next(data)  # the gradient of half a step was not saved
        while self.step < STEPS:
            self.model.train(self.way != "mode")
            self.optimizer.zero_grad()
            halves = 1 if self.way == "accumulation" and self.step == AT else 2
            for _ in range(halves):
                self.take(next(data))
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()
            self.average.update_parameters(self.model)
            self.step += 1
            if self.step % 4 == 0:
                self.evaluate()
            if self.step == AT and self.way in ("full", "full worker"):
                torch.save(self.state(), STATE)

    @torch.no_grad()
    def evaluate(self) -> None:
        self.average.eval()
        self.average(Samples().x)

    def state(self):
        kind, keys, *rest = np.random.get_state()
        return {
            "model": self.model.state_dict(),
            "ema": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": self.step,
            "data": (self.epoch, self.used),
            "rng": (random.getstate(), (kind, keys.tolist(), *rest), torch.get_rng_state()),
        }

    def restore(self) -> None:
        way, state = self.way, torch.load(STATE, weights_only=True)
        weights = dict(state["model"])
        if way == "a weight":
            del weights["4.weight"]
        if way == "buffers":
            weights = {key: value for key, value in weights.items() if "running" not in key}
        self.model.load_state_dict(weights, strict=False)
        if way != "average":
            self.average.load_state_dict(state["ema"])
        if way not in ("optimizer", "settings"):
            self.optimizer.load_state_dict(state["optimizer"])
        if way == "settings":
            kept = self.optimizer.param_groups[0]["weight_decay"]
            self.optimizer.load_state_dict(state["optimizer"])
            self.optimizer.param_groups[0]["weight_decay"] = kept
        if way != "scheduler":
            self.schedule.load_state_dict(state["scheduler"])
        if way == "scheduler twice":
            self.schedule.step()
        if way != "scaler":
            self.scaler.load_state_dict(state["scaler"])
        self.step = state["step"]
        self.epoch, self.used = state["data"]
        if way == "position":
            self.used = 0
        if way == "epoch":
            self.epoch = 0
        python, numpy, torch_state = state["rng"]
        if way != "python generator":
            random.setstate(python)
        if way != "numpy generator":
            np.random.set_state(numpy)
        if way != "torch generator":
            torch.set_rng_state(torch_state)


def run(way: str) -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    (FOLDER / f"{way}.pid").write_text(str(os.getpid()))
    training = Training(way)
    if not way.startswith("full"):
        training.restore()
    training.train()


def main() -> None:
    torch.set_num_threads(1)
    for way in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(way)
                status = 0
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{way} failed")


main()
