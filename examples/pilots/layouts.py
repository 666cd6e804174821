"""Ways to lay one model out over processes and devices; each computes gradients of the same global batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F  # noqa: N812 - the usual name
from model import BYTES, LanguageModel
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DataParallel, DistributedDataParallel

Config = dict[str, Any]
Batch = tuple[Tensor, Tensor]

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy in nats for each byte."""
    return F.cross_entropy(logits.float().reshape(-1, BYTES), labels.reshape(-1).to(logits.device))


class Layout:
    """One process, one device; and what the others share with it.

    Args:
        device: of this rank.
        size: ranks that read different data.
        place: of this rank among them.
    """

    sharded = False

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        self.size, self.place = 1, 0
        kind = PRECISIONS[config["precision"]]
        self.autocast = lambda: torch.autocast(device.type, dtype=kind) if kind else nullcontext()
        self.scaler = torch.amp.GradScaler(device.type, enabled=config["precision"] == "fp16")
        self.model: nn.Module = self.wrap()

    def build(self, **options: Any) -> LanguageModel:
        """Make the model with the weights that the seed gives it, whatever the layout."""
        torch.manual_seed(self.config["seed"])
        again = self.config["activation_checkpointing"]
        return LanguageModel(**self.config["model"], again=again, devices=(self.device,), **options)

    def wrap(self) -> nn.Module:
        """Return what is called."""
        return self.build()

    def mine(self, batch: Batch) -> Batch:
        """Take this rank's part of a global batch."""
        inputs, labels = (part.chunk(self.size)[self.place].to(self.device) for part in batch)
        return inputs, labels

    def exchange(self, wanted: bool) -> Any:  # noqa: ARG002 - nothing to exchange here
        """A region in which gradients are exchanged between ranks, or only added up."""
        return nullcontext()

    def gradients(self, batch: Batch) -> float | None:
        """Compute the gradients of a step; return this rank's mean loss, None where another rank has it."""
        inputs, labels = self.mine(batch)
        pieces = self.config["accumulate"]
        total = 0.0
        parts = zip(inputs.chunk(pieces), labels.chunk(pieces), strict=True)
        for number, (x, y) in enumerate(parts, 1):
            with self.exchange(number == pieces):
                with self.autocast():
                    loss = loss_of(self.model(x), y) / pieces
                self.scaler.scale(loss).backward()
            total += float(loss.detach())
        return total

    def evaluate(self, batch: Batch) -> float | None:
        """Return the mean loss of this rank's part of a batch, without gradients."""
        self.model.eval()
        with torch.no_grad(), self.autocast():
            inputs, labels = self.mine(batch)
            loss = float(loss_of(self.model(inputs), labels))
        self.model.train()
        return loss

    def save(self, place: Path, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Write everything that changes from step to step; rank 0 does, since all hold the same."""
        state = {"model": self.model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        state |= {"scaler": self.scaler.state_dict(), "rng": torch.get_rng_state()}
        if not dist.is_initialized() or dist.get_rank() == 0:
            place.mkdir(parents=True, exist_ok=True)
            torch.save(state, place / "state.pt")

    def load(self, place: Path, optimizer: torch.optim.Optimizer) -> int:
        """Go back to what `save` wrote; return the step after which it did."""
        state = torch.load(place / "state.pt", weights_only=True, map_location=self.device)
        self.model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["rng"].cpu())
        return int(state["step"])


class DataParallelLayout(Layout):
    """One process, a replica for each visible device; without devices it calls the model itself."""

    def wrap(self) -> nn.Module:
        """Return what is called."""
        return DataParallel(self.build())


class DDP(Layout):
    """A replica for each process; gradients are averaged in buckets while the backward pass runs."""

    def wrap(self) -> nn.Module:
        """Return what is called."""
        self.size, self.place = dist.get_world_size(), dist.get_rank()
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(self.build(), device_ids=ids, **self.config["ddp"])

    def exchange(self, wanted: bool) -> Any:
        """Average gradients over the ranks, or leave that to a later pass."""
        assert isinstance(self.model, DistributedDataParallel)
        return nullcontext() if wanted else self.model.no_sync()


class Sharded(Layout):
    """Layouts of which no rank holds everything: their checkpoints are written by all ranks together."""

    sharded = True

    def save(self, place: Path, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Write each rank's part."""
        state = self._state(optimizer)
        dcp.save({**state, "step": torch.tensor(step)}, checkpoint_id=place)

    def load(self, place: Path, optimizer: torch.optim.Optimizer) -> int:
        """Read each rank's part, by name."""
        state = {**self._state(optimizer), "step": torch.tensor(0)}
        dcp.load(state, checkpoint_id=place)
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        set_state_dict(self.model, optimizer, **parts, options=options)
        torch.set_rng_state(state[f"rng.{dist.get_rank()}"])
        return int(state["step"])

    def _state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        model, held = get_state_dict(self.model, optimizer, options=options)
        return {"model": model, "optimizer": held, f"rng.{dist.get_rank()}": torch.get_rng_state()}


class FSDP2(Sharded):
    """Each process holds a shard of every parameter, and gathers a block when it is needed."""

    def wrap(self) -> nn.Module:
        """Return what is called."""
        self.size, self.place = dist.get_world_size(), dist.get_rank()
        model = self.build()
        for block in model.blocks.values():
            fully_shard(block)
        return fully_shard(model)

    def exchange(self, wanted: bool) -> Any:
        """Reduce gradients to their shards, or leave that to a later pass."""
        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(wanted)
        return nullcontext()


class ModelParallel(Layout):
    """One process, the blocks on several devices; without two devices both halves lie on the same one."""

    def wrap(self) -> nn.Module:
        """Return what is called."""
        torch.manual_seed(self.config["seed"])
        count = torch.cuda.device_count()
        devices = tuple(torch.device("cuda", n) for n in range(2)) if count > 1 else (self.device,) * 2
        again = self.config["activation_checkpointing"]
        return LanguageModel(**self.config["model"], again=again, devices=devices)


class Pipeline(Sharded):
    """Each process holds some blocks; micro-batches follow each other through them (GPipe)."""

    def wrap(self) -> nn.Module:
        """Return this rank's stage."""
        stages, number = dist.get_world_size(), dist.get_rank()
        stage = self.build().stage(number, stages)
        self.first, self.last = number == 0, number == stages - 1
        made = PipelineStage(stage, number, stages, self.device)
        self.schedule = ScheduleGPipe(made, self.config["accumulate"], loss_fn=loss_of)
        return stage

    def gradients(self, batch: Batch) -> float | None:
        """Send a batch through; only the last stage knows the loss."""
        inputs, labels = (part.to(self.device) for part in batch)
        losses: list[Tensor] = []
        given = (inputs,) if self.first else ()
        told = {"target": labels, "losses": losses} if self.last else {}
        self.schedule.step(*given, **told)
        return float(torch.stack(losses).detach().mean()) if losses else None

    def evaluate(self, batch: Batch) -> float | None:  # noqa: ARG002
        """No stage can evaluate alone."""
        return None


LAYOUTS: dict[str, Callable[[Config, torch.device], Layout]] = {
    "single": Layout,
    "data-parallel": DataParallelLayout,
    "ddp": DDP,
    "fsdp2": FSDP2,
    "model-parallel": ModelParallel,
    "pipeline": Pipeline,
}
