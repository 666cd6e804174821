"""Train a small byte-level language model that can stop anywhere and go on as if it had not.

    torchrun --standalone --nproc-per-node=2 train.py --config configs/pilot.yaml
    torchrun --standalone --nproc-per-node=2 train.py --config configs/pilot.yaml --resume out/checkpoint
    python train.py --config configs/pilot.yaml --set optimizer.lr=0.002 --set precision=bf16

A resumed run prints, bit for bit, the losses of the run that never stopped.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import math
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # now: imported later, its default arguments keep the process group for ever
import torch.nn.functional as F  # noqa: N812 - the usual name
import yaml
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler

BYTES = 256
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
STATE = "state.pt"

Config = dict[str, Any]


def read_config(path: Path, overrides: list[str]) -> Config:
    """Read the YAML file at `path` and apply overrides such as `optimizer.lr=0.002`."""
    config: Config = yaml.safe_load(path.read_text(encoding="utf-8"))
    for override in overrides:
        key, _, text = override.partition("=")
        *parents, leaf = key.split(".")
        try:
            node = config
            for parent in parents:
                node = node[parent]
            value = float(text) if isinstance(node[leaf], float) else yaml.safe_load(text)
            if type(value) is not type(node[leaf]):
                raise TypeError(value)
        except (KeyError, TypeError, ValueError, yaml.YAMLError):
            sys.exit(f"--set {override}: {path} has no such setting, or none of this type")
        node[leaf] = value
    if config["precision"] not in DTYPES:
        sys.exit(f"precision {config['precision']} is none of {', '.join(DTYPES)}")
    return config


class Block(nn.Module):
    """Causal self-attention, then a feed-forward layer; each normalised before and added after."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.forward_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, time, width]` to the same shape."""
        batch, length, width = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.drop(self.attention_out(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.narrow(F.gelu(self.widen(self.forward_norm(x)))))


class LanguageModel(nn.Module):
    """Decoder-only transformer over bytes."""

    def __init__(
        self, width: int, layers: int, heads: int, context: int, dropout: float, again: bool
    ) -> None:
        super().__init__()
        self.again = again  # compute activations again in the backward pass instead of keeping them
        self.token = nn.Embedding(BYTES, width)
        self.position = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                residual = name.endswith(("attention_out.weight", "narrow.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map bytes `[batch, time]` to logits of the byte after each, `[batch, time, 256]`."""
        x = self.drop(self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device)))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again and self.training else block(x)
        return self.head(self.norm(x))


def join_world() -> torch.device:
    """Join the peers that torchrun announces, or be a world of one; return the device of this rank.

    Ranks with a device each talk through NCCL (RCCL on ROCm). Ranks on processors talk
    through gloo, and so do ranks that share a device, which NCCL refuses.
    """
    device, backend = torch.device("cpu"), "gloo"
    if devices := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % devices)
        torch.cuda.set_device(device)
        backend = "nccl" if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= devices else "gloo"
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


def mean_over_ranks(value: Tensor) -> float:
    """Return the mean of one number of each rank."""
    total = value.detach().clone()
    dist.all_reduce(total)
    return float(total / dist.get_world_size())


def say(line: str) -> None:
    """Print a line once, not once per rank."""
    if dist.get_rank() == 0:
        print(line, flush=True)


def seed_everything(seed: int) -> None:
    """Seed every generator of this process; torch passes the seed on to its devices."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def rng_state(device: torch.device) -> dict[str, Any]:
    """Return the state of every generator of this process, in types that a safe load accepts."""
    legacy: Any = np.random.get_state()
    kind, keys, *rest = legacy
    return {
        "python": random.getstate(),
        "numpy": (kind, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_rng_state(state: dict[str, Any], device: torch.device) -> None:
    """Go back to what `rng_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["device"], device)


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """`count` windows evenly spaced over a text: `context` bytes, and the byte after each."""

    def __init__(self, text: bytes, count: int, context: int) -> None:
        self.tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.count, self.context = count, context
        self.stride = (len(text) - context - 1) // count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.tokens[index * self.stride :][: self.context + 1].long()
        return window[:-1], window[1:]


class Batches:
    """Micro-batches of one rank, epoch after epoch without end, starting anywhere.

    Skipping is by index, and each loader has a generator of its own: neither touches the
    randomness of the training.
    """

    def __init__(self, data: Windows, size: int, seed: int) -> None:
        self.data, self.size = data, size
        self.sampler = DistributedSampler(data, seed=seed, drop_last=True)
        self.epoch = 0
        self.used = 0  # micro-batches of this epoch handed out so far
        if len(self.sampler) < size:
            sys.exit(
                f"{len(data)} windows are no micro-batch of {size} for each of {dist.get_world_size()} ranks"
            )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from self.rest_of_epoch()
            self.epoch, self.used = self.epoch + 1, 0

    def rest_of_epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Hand out what is left of this epoch."""
        self.sampler.set_epoch(self.epoch)
        left = list(BatchSampler(self.sampler, self.size, drop_last=True))[self.used :]
        for batch in DataLoader(self.data, batch_sampler=left, generator=torch.Generator()):
            self.used += 1
            yield batch


class Trainer:
    """Everything that changes from step to step, and the step."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        seed_everything(config["seed"])
        model = LanguageModel(**config["model"], again=config["activation_checkpointing"]).to(device)
        seed_everything(config["seed"] + 1 + dist.get_rank())  # equal weights, other dropout on each rank
        # One bucket per weight. By default DDP packs gradients together, and packs them anew after the
        # first step of a process: on three or more ranks a resumed run would round other sums.
        self.model = DistributedDataParallel(model, bucket_cap_mb_list=[0])
        self.step = 0
        self.make_optimizer(**config["optimizer"])
        self.make_data(**config["data"])

    def make_optimizer(
        self, lr: float, final_lr: float, warmup: int, betas: list[float], weight_decay: float, clip: float
    ) -> None:
        """AdamW that decays matrices only; linear warm-up, then half a cosine down to `final_lr`."""
        steps, weights = self.config["steps"], list(self.model.parameters())
        groups = [
            {"params": [w for w in weights if w.dim() >= 2], "weight_decay": weight_decay},
            {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
        ]

        def factor(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            progress = (step - warmup) / max(1, steps - warmup)
            return (final_lr + (lr - final_lr) * (1 + math.cos(math.pi * progress)) / 2) / lr

        self.clip = clip
        self.optimizer = torch.optim.AdamW(groups, lr=lr, betas=tuple(betas))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.config["precision"] == "fp16")

    def make_data(
        self, corpus: str, samples_per_epoch: int, validation_samples: int, validation_share: float
    ) -> None:
        """Keep the end of the corpus for validation; cut windows out of both parts."""
        text = Path(corpus).read_bytes()
        cut = int(len(text) * (1 - validation_share))
        context, seed, size = self.config["model"]["context"], self.config["seed"], self.config["micro_batch"]
        self.batches = Batches(Windows(text[:cut], samples_per_epoch, context), size, seed)
        self.stream = iter(self.batches)
        self.validation = Batches(Windows(text[cut:], validation_samples, context), size, seed)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean cross-entropy of a micro-batch, in nats per byte."""
        tokens, following = (part.to(self.device) for part in batch)
        dtype = DTYPES[self.config["precision"]]
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype != torch.float32):
            return F.cross_entropy(self.model(tokens).flatten(0, 1), following.flatten())

    def train_step(self) -> tuple[float, float]:
        """Take one optimizer step; return the loss over all ranks and the norm of the gradient."""
        self.model.train()
        self.optimizer.zero_grad()
        total, parts = torch.zeros((), device=self.device), self.config["accumulate"]
        for part in range(1, parts + 1):
            # Gradients are exchanged once, with the last part.
            with nullcontext() if part == parts else self.model.no_sync():
                loss = self.loss(next(self.stream)) / parts
                self.scaler.scale(loss).backward()
            total += loss.detach()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.step += 1
        return mean_over_ranks(total), float(norm)

    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss over the validation windows of all ranks."""
        self.model.eval()
        self.validation.used = 0
        return mean_over_ranks(torch.stack([self.loss(b) for b in self.validation.rest_of_epoch()]).mean())

    def save(self, folder: Path) -> None:
        """Write all that a new process needs. Every rank calls this; rank 0 writes, all or nothing."""
        rng: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(rng, rng_state(self.device))
        if dist.get_rank() != 0:
            return
        state = {
            "config": self.config,
            "step": self.step,
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict() if self.scaler.is_enabled() else None,
            "data": {"epoch": self.batches.epoch, "used": self.batches.used},
            "rng": rng,
        }
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{STATE}"
        with draft.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(folder / STATE)

    def restore(self, folder: Path) -> None:
        """Go on from what `save` wrote. Random states come last, so that nothing draws after them."""
        state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
        if changed := [key for key, value in self.config.items() if state["config"].get(key) != value]:
            sys.exit(f"{folder} was saved with other settings of: {', '.join(changed)}")
        if len(state["rng"]) != dist.get_world_size():
            sys.exit(
                f"{folder} was saved by {len(state['rng'])} ranks; this is a world of {dist.get_world_size()}"
            )
        self.step = state["step"]
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        self.batches.epoch, self.batches.used = state["data"]["epoch"], state["data"]["used"]
        set_rng_state(state["rng"][dist.get_rank()], self.device)

    def digest(self) -> str:
        """SHA-256 over all weights, in the order of the model."""
        total = hashlib.sha256()
        for tensor in self.model.module.state_dict().values():
            total.update(tensor.cpu().contiguous().view(torch.uint8).numpy())
        return f"sha256:{total.hexdigest()}"


def train(trainer: Trainer) -> None:
    """Take the steps that are left, and say how each went."""
    config = trainer.config
    count = sum(weight.numel() for weight in trainer.model.parameters())
    where = f"{dist.get_world_size()} x {trainer.device.type} ({dist.get_backend()})"
    say(f"{count:,} weights in {config['precision']} on {where}")
    while trainer.step < config["steps"]:
        started = time.perf_counter()
        lr = trainer.scheduler.get_last_lr()[0]
        loss, norm = trainer.train_step()
        seconds = time.perf_counter() - started
        place = f"step {trainer.step}/{config['steps']}"
        say(
            f"{place}  epoch {trainer.batches.epoch}  loss {loss:.4f} = {loss.hex()}"
            f"  norm {norm:.3f}  lr {lr:.6f}  {seconds:.2f} s"
        )
        if trainer.step % config["validation"]["every"] == 0:
            loss = trainer.validate()
            say(f"{place}  validation {loss:.4f} = {loss.hex()}")
        if trainer.step == config["checkpoint"]["at_step"]:
            trainer.save(Path(config["checkpoint"]["path"]))
            say(f"{place}  saved {config['checkpoint']['path']}")
    say(f"weights {trainer.digest()}")


def main() -> None:
    """Read the command line, train, and leave nothing running."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True, help="YAML file")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on from this checkpoint")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one setting")
    options = parser.parse_args()
    for path in [options.config] + ([options.resume / STATE] if options.resume else []):
        if not path.is_file():
            parser.error(f"there is no file {path}")
    config = read_config(options.config, options.set)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first device is used
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    trainer = Trainer(config, join_world())
    if options.resume:
        trainer.restore(options.resume)
        loss = trainer.validate()
        say(f"step {trainer.step}/{config['steps']}  restored, validation {loss:.4f} = {loss.hex()}")
    train(trainer)
    # A thread of gloo that still holds a tensor while Python ends aborts the process. The
    # threads end with the process group, and that ends once nothing refers to it. Whoever ends
    # it holds the interpreter's lock, which a thread needs to let go of its last result: give
    # the threads a moment with the lock free, or both wait for ever.
    time.sleep(0.2)
    del trainer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
