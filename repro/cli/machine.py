"""Facts about this machine, and about what the pilot loaded on it."""

from __future__ import annotations

from repro.adapters.probe import engine_facts, probe
from repro.adapters.process import SubprocessRunner
from repro.adapters.torchenv import userspace_of_head
from repro.adapters.tracefiles import open_trace
from repro.host import HostFacts
from repro.image import EngineInfo
from repro.run import PilotRun

__all__ = ["accelerators_here", "facts_of_run"]


def facts_of_run(run: PilotRun, engine: EngineInfo | None) -> HostFacts:
    """Probe the host's driver, and read the userspace from what the pilot's first rank recorded."""
    host = probe(SubprocessRunner(), engine=engine_facts(engine) if engine else None)
    head = open_trace(run.folder, run.phases).phases[0].ranks[0].head()
    return host.model_copy(update={"userspace": userspace_of_head(head)})


def accelerators_here(accelerator: str, engine: EngineInfo | None) -> int:
    """Count the devices a pilot could use; 0 where there is none, or where the engine is elsewhere."""
    if accelerator == "cpu" or (engine is not None and not engine.host.startswith("unix://")):
        return 0
    return probe(SubprocessRunner()).count_of("nvidia" if accelerator == "cuda" else "amd")
