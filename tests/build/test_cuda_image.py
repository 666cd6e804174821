"""A real CUDA image: torch's own CUDA wheels on the Debian base, built twice, and run on the processor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_runtime import DockerRuntime
from repro.image import HeldImage, ImageRecord
from repro.job import Job, JobResult, Mount
from repro.lock import Lock

PILOT = Path(__file__).parents[2] / "examples" / "pilot"
DOCKERFILE = Path(__file__).parents[2] / "Dockerfile.cuda"
REPRO = Path(sys.executable).parent / "repro"
NEEDED_BYTES = 24 << 30
"""Wheels 3 GB, the raw and the normalised image 6 GB each, and as much again on the way."""

PROBE = """
import json, torch
answer = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
          "available": torch.cuda.is_available(), "sum": torch.ones(3).sum().item()}
try:
    torch.ones(1).cuda()
except RuntimeError as error:
    answer["refused"] = str(error).splitlines()[0]
print(json.dumps(answer))
"""


def say(line: str) -> None:
    """The figures of this test: `pytest -s` shows them."""
    sys.stdout.write(f"{line}\n")


class Project:
    """The pilot with the accelerator `cuda` and one rank, on an engine and a cache of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.root = folder / "pilot"
        self.environment = {**environment, "REPRO_CACHE": str(folder / "cache")}
        ignore = shutil.ignore_patterns("locks", "repro.lock", "Dockerfile.*", "manifests")
        shutil.copytree(PILOT, self.root, ignore=ignore)
        shutil.copy(DOCKERFILE, self.root)
        (self.root / "requirements.in").write_text("numpy\npyyaml\ntorch==2.14.1\n")
        text = (self.root / "repro.yaml").read_text()
        text = text.replace("  cpu: {dockerfile: Dockerfile.cpu", "  cuda: {dockerfile: Dockerfile.cuda")
        (self.root / "repro.yaml").write_text(text.replace("--nproc-per-node=2", "--nproc-per-node=1"))

    def repro(self, *words: str, code: int = 0) -> str:
        """Run a command, and print what it took: the figures of this test."""
        started = time.monotonic()
        with (self.root / "said").open("w+") as said, (self.root / "printed").open("w+") as printed:
            child = subprocess.Popen(
                [REPRO, *words], cwd=self.root, env=self.environment, stdout=printed, stderr=said
            )
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.monotonic() - started
            say(f"repro {' '.join(words)}: {seconds:.0f} s, at most {usage.ru_maxrss / 1024:.0f} MiB")
            said.seek(0)
            printed.seek(0)
            text = said.read()
            assert child.returncode == code, text
            return printed.read() + text

    def run(self, engine: DockerEngine, image: str, *argv: str) -> JobResult:
        """Run in the image, as a job that asks for no GPU."""
        out = self.root / "out"
        out.mkdir(exist_ok=True)
        job = Job(
            argv=argv,
            environment={"HOME": "/tmp", "OMP_NUM_THREADS": "1"},
            workdir="/workspace",
            image=image,
            mounts=(
                Mount(source=str(self.root / "data"), target="/workspace/data"),
                Mount(source=str(out), target="/workspace/out", writable=True),
            ),
            timeout_s=900.0,
        )
        return DockerRuntime(engine).run(job, on_line=say)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.network
@pytest.mark.timeout(5400)
def test_a_real_cuda_image_is_locked_built_twice_checked_and_run_on_the_processor(
    private_engine: dict[str, str], engine: DockerEngine, base_image: HeldImage, tmp_path: Path
) -> None:
    if (free := shutil.disk_usage(tmp_path).free) < NEEDED_BYTES:
        pytest.skip(f"needs {NEEDED_BYTES >> 30} GiB of disk, {free >> 30} GiB are free")
    project = Project(tmp_path, private_engine)
    with DockerEngine.connect(private_engine) as own:
        own.load(engine.save("repro-base:bookworm"))
        project.repro("lock", "-a", "cuda")
        lock = Lock.parse(json.loads((project.root / "repro.lock").read_bytes()))
        wheels = lock.accelerators["cuda"].packages.files
        vendor = [wheel.name for wheel in wheels if wheel.name.startswith(("nvidia-", "cuda-"))]
        say(f"{len(wheels)} wheels, {len(vendor)} of NVIDIA's, {sum(w.size for w in wheels) / 1e9:.2f} GB")
        assert len(vendor) > 10

        record = ImageRecord.parse(json.loads(project.repro("build", "-a", "cuda", "--json", "--quiet")))
        say(f"image {record.identity.config_digest}, {record.identity.size / 1e9:.2f} GB")
        held = own.find(record.identity.config_digest)
        assert held is not None
        assert held.diff_ids == record.identity.diff_ids

        answer = json.loads(project.run(own, record.identity.config_digest, "python", "-c", PROBE).tail[-1])
        assert (answer["torch"].partition("+")[0], answer["hip"], answer["sum"]) == ("2.14.1", None, 3.0)
        assert int(answer["cuda"].partition(".")[0]) >= 12
        words = (
            "torchrun",
            "--standalone",
            "--nproc-per-node=1",
            "train.py",
            "--config",
            "configs/pilot.yaml",
        )
        trained = project.run(own, record.identity.config_digest, *words)
        assert (trained.exit_code, trained.ended) == (0, "exited")
        assert any((project.root / "out").rglob("*")), "it trained, and saved its checkpoint"
        if not answer["available"]:
            assert "NVIDIA" in answer["refused"]
            assert "error[" in project.repro("run", "-a", "cuda", code=1)

        checked = project.repro("build", "-a", "cuda", "--check")
        assert checked.startswith(f"identical  {record.identity.config_digest}")
        assert "unexplained" not in checked
