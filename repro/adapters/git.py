"""Read working trees with the `git` command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from repro.lock import GitState

__all__ = ["GitCommand"]


class GitCommand:
    """Fulfils `repro.ports.Git`. Without the command, no folder has a state."""

    def _ask(self, folder: Path, *arguments: str) -> str | None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        try:
            answer = subprocess.run(
                ["git", "-C", str(folder), *arguments],
                env=environment,
                capture_output=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            return None
        return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else None

    def state(self, folder: Path) -> GitState | None:
        """Return commit and dirtiness of the tree that holds `folder`, or None where there is none.

        Looks at what lies below `folder`; the lock that is just being written does not make it dirty.
        """
        commit = self._ask(folder, "rev-parse", "--verify", "HEAD")
        if commit is None:
            return None
        own = [":(exclude)repro.lock", ":(exclude)locks"]
        changes = self._ask(folder, "status", "--porcelain", "--untracked-files=normal", "--", ".", *own)
        return GitState(commit=commit.strip(), dirty=bool(changes))
