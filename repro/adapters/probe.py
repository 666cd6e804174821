"""Ask this machine what it is: the vendors' tools side by side, and the kernel's files.

Only tools that are there are started, all at once, each with a time of its own.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from repro.adapters import amd, hostfiles, nvidia
from repro.adapters.assemble import assemble
from repro.adapters.cells import decode, printable
from repro.adapters.nvidia.query import COLUMNS
from repro.adapters.process import Completed, Runner, SubprocessRunner
from repro.adapters.reading import Reading, silent
from repro.adapters.scrub import PUBLIC_SALT, Scrubber
from repro.host import EngineFacts, Evidence, HostFacts, Vendor
from repro.image import EngineInfo

__all__ = ["OVERRIDES", "engine_facts", "probe", "probe_host"]

OVERRIDES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
"""Variables that change what tools and runtimes report."""

_NVIDIA_WORDS = (
    ("-q", "-x"),
    ("-L",),
    (f"--query-gpu={COLUMNS}", "--format=csv"),
    (),
    ("topo", "-m"),
)
_AMD_WORDS = {
    "amd-smi": (("static", "--json"), ("version", "--json")),
    "rocm-smi": (("-a", "--json"),),
    "rocminfo": ((),),
}
_TOOLKITS = ("nvidia-ctk", "nvidia-container-cli")
_TIMEOUT_S = 30.0

_Read = Callable[[str, str, int | None], Reading]


@dataclass(frozen=True, slots=True)
class _Question:
    """A command, and who reads its answer."""

    argv: tuple[str, ...]
    source: str
    vendor: Vendor
    read: _Read


@dataclass(frozen=True, slots=True)
class _Answers:
    """What came back: facts, and the raw text beside them."""

    scrubber: Scrubber
    readings: list[Reading] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)

    def take(self, question: _Question, answer: Completed) -> None:
        stdout, stderr = decode(answer.stdout), decode(answer.stderr)
        self.evidence.append(self.scrubber.evidence(" ".join(answer.argv), answer.exit_code, stdout, stderr))
        if answer.ended == "timed-out":
            self.readings.append(silent(question.vendor, question.source, "timed-out"))
            return
        reading = question.read(stdout, question.source, answer.exit_code)
        if stderr and any(reply.kind == "unreadable" for reply in reading.no_answer):
            reading = question.read(f"{stdout}\n{stderr}", question.source, answer.exit_code)
        self.readings.append(_scrubbed(reading, self.scrubber))

    def find(self, found: Iterable[hostfiles.Found]) -> None:
        for reading, path, text in found:
            self.readings.append(_scrubbed(reading, self.scrubber))
            if path is not None:
                self.evidence.append(self.scrubber.evidence(path, None, text))

    def listed(self) -> set[Vendor]:
        return {device.vendor for reading in self.readings for device in reading.devices or ()}


def _scrubbed(reading: Reading, scrubber: Scrubber) -> Reading:
    """Let no reason quote an id or a name."""
    answers = tuple(
        answer.model_copy(update={"said": scrubber.text(answer.said) if answer.said else None})
        for answer in reading.no_answer
    )
    return replace(reading, no_answer=answers)


def engine_facts(info: EngineInfo) -> EngineFacts:
    """Return what belongs to the machine of an engine's description; its address does not."""
    return EngineFacts(
        name=info.name,
        version=info.version,
        store=info.store,
        driver=info.driver,
        runtime=info.runtime,
        runtimes=info.runtimes,
        rootless=info.rootless,
    )


def probe_host(engine: EngineInfo | None = None) -> HostFacts:
    """Return what this machine is, with the engine that was found."""
    return probe(SubprocessRunner(), engine=engine_facts(engine) if engine else None)


def probe(
    runner: Runner,
    *,
    root: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
    engine: EngineFacts | None = None,
    salt: bytes = PUBLIC_SALT,
    reveal: bool = False,
) -> HostFacts:
    """Return what a machine is. Nothing that a tool or file does makes it raise.

    Args:
        runner: starts the tools.
        root: folder below which `proc`, `sys`, `etc` and `opt` are read.
        environment: variables of this process; the real ones where None.
        engine: what the container engine says of itself, if there is one.
        salt: key of the devices' stable ids.
        reveal: keep serial numbers, ids and names in the raw text.
    """
    variables = os.environ if environment is None else environment
    scrubber = Scrubber(salt=salt, names=_names(), reveal=reveal)
    answers = _Answers(scrubber)
    answers.find(hostfiles.read_system(root, variables))
    _ask(runner, [*_nvidia_questions(runner, root, answers), *_amd_questions(runner, answers)], answers)
    answers.find(hostfiles.read_nvidia(root))
    answers.find(hostfiles.read_amd(root))
    answers.find(hostfiles.read_pci(root, answers.listed()))
    return assemble(
        answers.readings,
        scrubber=scrubber,
        engine=engine,
        evidence=answers.evidence,
        overrides={
            name: printable(scrubber.text(variables[name])) for name in OVERRIDES if name in variables
        },
    )


def _names() -> tuple[str, ...]:
    """Return the host's name, long and short."""
    name = platform.node()
    return tuple({name, name.partition(".")[0]} - {"", "localhost"})


def _read_nvidia(text: str, source: str, code: int | None) -> Reading:
    return nvidia.read(text, source, exit_code=code)


def _read_amd(text: str, source: str, code: int | None) -> Reading:
    return amd.read(text, source, exit_code=code)


def _read_nvml(text: str, source: str, _: int | None) -> Reading:
    return nvidia.read_nvml(text, source)


def _read_toolkit(text: str, source: str, _: int | None) -> Reading:
    return nvidia.read_toolkit(text, source)


def _nvidia_questions(runner: Runner, root: Path, answers: _Answers) -> Iterable[_Question]:
    tool = runner.which("nvidia-smi")
    if (tool or (root / "proc/driver/nvidia").is_dir()) and find_spec("pynvml"):
        dump = str(Path(nvidia.__file__).with_name("nvml_dump.py"))
        yield _Question((sys.executable, "-I", dump), "nvml", "nvidia", _read_nvml)
    if tool is None:
        answers.readings.append(silent("nvidia", "nvidia-smi", "tool-missing"))
    for words in _NVIDIA_WORDS if tool else ():
        yield _Question((str(tool), *words), " ".join(("nvidia-smi", *words)), "nvidia", _read_nvidia)
    toolkit = next((name for name in _TOOLKITS if runner.which(name)), None)
    if toolkit:
        yield _Question((str(runner.which(toolkit)), "--version"), toolkit, "nvidia", _read_toolkit)


def _amd_questions(runner: Runner, answers: _Answers) -> Iterable[_Question]:
    for name, forms in _AMD_WORDS.items():
        path = runner.which(name)
        if path is None:
            answers.readings.append(silent("amd", name, "tool-missing"))
        for words in forms if path else ():
            yield _Question((str(path), *words), " ".join((name, *words)), "amd", _read_amd)


def _ask(runner: Runner, questions: Sequence[_Question], answers: _Answers) -> None:
    """Run every command at the same time; take the answers in the order of the questions."""
    if not questions:
        return
    with ThreadPoolExecutor(max_workers=len(questions)) as pool:
        run = partial(runner.run, timeout_s=_TIMEOUT_S)
        for question, answer in zip(questions, pool.map(lambda one: run(one.argv), questions), strict=True):
            answers.take(question, answer)
