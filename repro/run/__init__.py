"""Run the pilot: full; up to the checkpoint, where the process ends; resumed in a new process.

Each phase is one job with no network. The recorder is mounted beside the pilot,
never part of the image, and writes one file per process; what it wrote is merged
into `trace/<phase>/rank-<n>.jsonl`.
"""

from repro.run.calibrate import FEWEST
from repro.run.phase import RECORDER, TRACE, WORKSPACE, job_limits
from repro.run.pilot import OnPhase, PilotRun, pilot_environment, run_command, run_pilot
from repro.run.processes import require_one_process_each
from repro.run.project import Project, require_artifacts
from repro.run.saved import open_checkpoint
from repro.run.trial import files_written, run_bare, run_full, run_modules, run_probe

__all__ = [
    "FEWEST",
    "RECORDER",
    "TRACE",
    "WORKSPACE",
    "OnPhase",
    "PilotRun",
    "Project",
    "files_written",
    "job_limits",
    "open_checkpoint",
    "pilot_environment",
    "require_artifacts",
    "require_one_process_each",
    "run_bare",
    "run_command",
    "run_full",
    "run_modules",
    "run_pilot",
    "run_probe",
]
