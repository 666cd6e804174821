"""The package lock as files that other tools install from."""

from __future__ import annotations

from collections.abc import Sequence

import tomli_w
from packaging.pylock import Pylock

from repro.digest import hex_of
from repro.lock import PackageFile, Platform
from repro.resolve.compiled import Entry, parse_compiled, render

__all__ = ["pylock_text", "requirements_text"]


def requirements_text(
    accelerator: str, platform: Platform, files: Sequence[PackageFile], compiled: str
) -> str:
    """Write `locks/requirements.<accelerator>.txt`: `pip install --require-hashes --no-deps -r` takes it.

    Args:
        compiled: pip-compile's text, for the reasons why each package is there.
    """
    reasons = {entry.name: entry.via for entry in parse_compiled(compiled, where="pip-compile")}
    machine = f"{platform.os} {platform.architecture}, {platform.libc}, Python {platform.python}"
    head = (
        f"# {accelerator}: wheels for {machine}.\n"
        "# Written by `repro lock`. One hash per package: the file that goes into the image.\n"
    )
    entries = [
        Entry(name=file.name, version=file.version, hashes=(file.digest,), via=reasons[file.name])
        for file in files
    ]
    return head + "".join(map(render, entries))


def _environment(platform: Platform) -> str:
    return (
        f"sys_platform == '{platform.os}' and platform_machine == '{platform.architecture}' and "
        f"python_version == '{platform.python}' and implementation_name == 'cpython'"
    )


def pylock_text(accelerator: str, platform: Platform, files: Sequence[PackageFile]) -> str:
    """Write `locks/pylock.<accelerator>.toml`, a PEP 751 lock file.

    A lock may not tell which mirror served a file, so each wheel has a path: put the
    files into `wheels/` beside the lock to install from it.
    """
    tree = {
        "lock-version": "1.0",
        "environments": [_environment(platform)],
        "requires-python": f"=={platform.python}.*",
        "created-by": "repro",
        "packages": [
            {
                "name": file.name,
                "version": file.version,
                "wheels": [
                    {
                        "name": file.filename,
                        "path": f"wheels/{file.filename}",
                        "size": file.size,
                        "hashes": {"sha256": hex_of(file.digest)},
                    }
                ],
                "tool": {"repro": {"index": file.index, "hash-source": file.hash_source}},
            }
            for file in files
        ],
        "tool": {"repro": {"accelerator": accelerator, "platform": platform.model_dump(exclude_none=True)}},
    }
    Pylock.from_dict(tree)
    return tomli_w.dumps(tree)
