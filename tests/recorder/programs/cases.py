"""Small training programs of many kinds. Knows nothing of any recorder.

Run as `cases.py FOLDER CASE...`: each case runs in a forked child and leaves
`FOLDER/<case>-<rank>.json` with digests of its final weights and random states.
"""

# mypy: ignore-errors
from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # the first optimizer would import it, in every child anew
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
FOLDER = Path(sys.argv[1])


class Block(nn.Module):
    def __init__(self, width: int, heads: int, p: float) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.drop(self.out(a))
        return x + self.drop(self.down(self.act(self.up(self.ln2(x)))))


class Model(nn.Module):
    def __init__(self, vocabulary: int = 67, width: int = 32, length: int = 16, p: float = 0.1) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4, p) for _ in range(2))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x, y=None):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        z = self.head(self.ln(h))
        return z if y is None else F.cross_entropy(z.flatten(0, 1).float(), y.flatten())


class Text(Dataset):
    def __init__(self) -> None:
        self.x = torch.randint(0, 67, (128, 17), generator=torch.Generator().manual_seed(7))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i, :-1], self.x[i, 1:]


CASES: dict[str, Callable[[], object]] = {}


def case(function):
    CASES[function.__name__] = function
    return function


def batches(**options):
    return iter(DataLoader(Text(), batch_size=8, shuffle=True, **options))


@case
def plain():
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    data = batches()
    for _ in range(6):
        optimizer.zero_grad()
        model(*next(data)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            model(*next(data))
    place = FOLDER / f"plain-{os.getpid()}.pt"
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 6, "lr": 0.5}, place
    )
    torch.load(place)
    return model


@case
def accumulation():
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = batches(num_workers=1)
    for _ in range(3):
        for _ in range(3):
            (model(*next(data)) / 3).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@case
def several_optimizers():
    model = Model()
    rest = [*model.tok.parameters(), *model.ln.parameters(), *model.head.parameters()]
    optimizers = [
        torch.optim.AdamW(model.blocks.parameters(), lr=1e-3, foreach=True),
        torch.optim.SGD(rest, lr=0.1, momentum=0.9, fused=True),
        torch.optim.Adam(model.pos.parameters(), lr=1e-3, fused=True),
    ]
    data = batches()
    for _ in range(4):
        model(*next(data)).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return model


@case
def alternating():
    """Two networks trained in turn, as a generator and its critic: two steps a round."""
    one, two = Model(), Model()
    first = torch.optim.SGD(one.parameters(), lr=0.1)
    second = torch.optim.SGD(two.parameters(), lr=0.1)
    data = batches()
    for _ in range(2):
        for model, optimizer in ((one, first), (two, second)):
            optimizer.zero_grad()
            model(*next(data)).backward()
            optimizer.step()
    return nn.ModuleList([one, two])


@case
def in_backward():
    model = Model()
    optimizers = {p: torch.optim.AdamW([p], lr=1e-3) for p in model.parameters()}

    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    data = batches()
    for _ in range(3):
        model(*next(data)).backward()
    return model


@case
def lbfgs():
    model = Model(p=0.0)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    data = batches()
    for _ in range(2):
        x, y = next(data)

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = model(x, y)
            loss.backward()
            return loss

        optimizer.step(closure)
    return model


def scaled(dtype: torch.dtype, scale: float, **options):
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
    data = batches()
    for _ in range(8):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = model(*next(data))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return model


@case
def bf16_scaler():
    return scaled(torch.bfloat16, 2.0**16)


@case
def fp16_overflow():
    return scaled(torch.float16, 2.0**22)


@case
def fp16_overflow_fused():
    return scaled(torch.float16, 2.0**22, fused=True)


def recomputed(reentrant: bool):
    model = Model()
    for block in model.blocks:
        block.forward = (lambda f: lambda x: checkpoint(f, x, use_reentrant=reentrant))(block.forward)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = batches()
    for _ in range(3):
        optimizer.zero_grad()
        model(*next(data)).backward()
        optimizer.step()
    return model


@case
def recompute_reentrant():
    return recomputed(True)


@case
def recompute_early_stop():
    return recomputed(False)


@case
def data_parallel():
    inner = Model()
    model = nn.DataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = batches()
    for _ in range(3):
        optimizer.zero_grad()
        model(*next(data)).mean().backward()
        optimizer.step()
    return inner


@case
def model_parallel_by_hand():
    whole = Model()
    front, back = (
        nn.Sequential(whole.tok, whole.blocks[0]),
        nn.Sequential(whole.blocks[1], whole.ln, whole.head),
    )
    optimizer = torch.optim.SGD([*front.parameters(), *back.parameters()], lr=0.1)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    data = batches()
    for _ in range(3):
        x, y = next(data)
        optimizer.zero_grad()
        loss_of(back(front(x)).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
    return nn.ModuleList([front, back])


@case
def exotic_tensors():
    """Buffers, complex and float64 parameters, sparse gradients, channels last, a parameter in no module."""
    torch.set_default_dtype(torch.float64)
    table = nn.Embedding(50, 8, sparse=True, dtype=torch.float32)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(
        torch.float32, memory_format=torch.channels_last
    )
    phase = nn.Parameter(torch.ones(4, dtype=torch.complex64))
    loose = torch.zeros(3, dtype=torch.bfloat16, requires_grad=True)
    precise = nn.Linear(4, 1)
    net.append(precise)
    net.register_parameter("phase", phase)
    optimizers = [
        torch.optim.SparseAdam(table.parameters()),
        torch.optim.SGD([*net.parameters(), loose], lr=0.1),
    ]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        x = net[1](net[0](torch.randn(2, 3, 5, 5, dtype=torch.float32))).mean((2, 3))
        y = precise((x * phase).abs().double()).sum() + loose.float().exp().sum()
        (y + table(torch.randint(0, 50, (4,))).sum()).backward()
        for optimizer in optimizers:
            optimizer.step()
    torch.set_default_dtype(torch.float32)
    return nn.ModuleList([table, net])


def refuse(*_):
    raise OverflowError


@case
def broken_step():
    """An exception inside a forward pass and inside a step, both caught; then training goes on."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = batches()
    for at in range(4):
        x, y = next(data)
        optimizer.zero_grad()
        if at == 1:
            try:
                model(x, y[:3])
            except ValueError:
                continue
        model(x, y).backward()
        if at == 2:
            refusal = optimizer.register_step_pre_hook(refuse)
            try:
                optimizer.step()
            except OverflowError:
                refusal.remove()
        optimizer.step()
    return model


@case
def nan_loss():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = batches()
    for at in range(3):
        optimizer.zero_grad()
        (model(*next(data)) * (float("nan") if at == 1 else 1.0)).backward()
        optimizer.step()
    return model


def joined(name: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/{name}.store", rank=RANK, world_size=WORLD)


def sharded_batches():
    data = Text()
    return iter(DataLoader(data, batch_size=8, sampler=DistributedSampler(data, seed=3)))


@case
def ddp():
    joined("ddp")
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = sharded_batches()
    for at in range(4):
        x, y = next(data)
        optimizer.zero_grad()
        if at % 2 == 0:
            with model.no_sync():
                model(x, y).backward()
        model(x, y).backward()
        optimizer.step()
    return model


@case
def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    joined("fsdp2")
    model = Model(p=0.0)
    mesh = init_device_mesh("cpu", (WORLD,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = sharded_batches()
    for _ in range(4):
        optimizer.zero_grad()
        model(*next(data)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    whole = {name: p.full_tensor().detach().clone() for name, p in model.named_parameters()}
    if RANK == 0:
        np.savez(
            FOLDER / f"fsdp2-{os.getpid()}.npz", **{name: value.numpy() for name, value in whole.items()}
        )
    return model


@case
def pipeline():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    joined("pipeline")
    whole = Model(p=0.0)
    halves = (nn.Sequential(whole.tok, whole.blocks[0]), nn.Sequential(whole.blocks[1], whole.ln, whole.head))
    model = halves[RANK]
    schedule = Schedule1F1B(
        PipelineStage(model, RANK, WORLD, torch.device("cpu")),
        n_microbatches=4,
        loss_fn=lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten()),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = batches(generator=torch.Generator().manual_seed(5))
    for _ in range(3):
        x, y = next(data)
        optimizer.zero_grad()
        if RANK == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=[])
        optimizer.step()
    return model


def sha256(parts: Iterable[bytes]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return state.hexdigest()


def raw(tensor) -> bytes:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


KEPT: list[nn.Module] = []
"""Models that must not be freed."""


def run(name: str) -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    model = CASES[name]()
    states = (
        torch.get_rng_state().numpy().tobytes(),
        repr(random.getstate()).encode(),
        np.random.get_state()[1].tobytes(),
    )
    tensors = [*model.parameters(), *model.buffers()]
    result = {"pid": os.getpid(), "weights": sha256(map(raw, tensors)), "rng": sha256(states)}
    (FOLDER / f"{name}-{RANK}.json").write_text(json.dumps(result))
    # The process ends with os._exit. Freeing a process group may wait for ever: a thread of gloo's that still
    # lets go of its last result needs the interpreter's lock, and whoever joins that thread holds it.
    KEPT.append(model)


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(name)
                status = 0
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"{name} failed")


main()
