"""A small locked project, its parts on disk and in a cache."""

from __future__ import annotations

from pathlib import Path

from repro.digest import digest_bytes
from repro.lock import (
    AcceleratorLock,
    BaseLock,
    FileLock,
    Lock,
    PackageFile,
    PackageLock,
    Platform,
    SourceLock,
)
from tests.parts import Parts

__all__ = ["ROOT", "Small", "any_base"]

ROOT = Path(__file__).parents[2]
NOTHING = digest_bytes(b"")


def _package(wheel: FileLock) -> PackageFile:
    name, version = wheel.path.split("-")[:2]
    return PackageFile(
        name=name,
        version=version,
        filename=wheel.path,
        size=wheel.size,
        digest=wheel.digest,
        index="default",
        hash_source="computed",
    )


class Small:
    """A project of two source files and two wheels."""

    def __init__(self, parts: Parts, root: Path, *, dockerfile: str | None = None) -> None:
        self.parts, self.root = parts, root
        (root / "configs").mkdir(parents=True)
        (root / "train.py").write_text("import tinypkg\nprint(tinypkg.VALUE)\n")
        (root / "configs" / "run.sh").write_text("#!/bin/sh\necho run\n")
        text = dockerfile or (ROOT / "Dockerfile.cpu").read_text()
        (root / "Dockerfile.cpu").write_text(text)
        entry = "tiny = tinypkg:VALUE.bit_length"
        self.wheels = [
            parts.wheel("tinypkg", "1.5", {"tinypkg/__init__.py": "VALUE = 42\n"}, scripts=entry),
            parts.wheel("other_pkg", "0.1+cpu", {"other.py": "", "data/ü.txt": "x" * 100}),
        ]

    def lock(self, base: BaseLock) -> Lock:
        """Lock it on a base."""
        pip = self.parts.pip()
        files = ("train.py", "configs/run.sh")
        packages = PackageLock(
            platform=Platform(python="3.11", os="linux", architecture="x86_64"),
            requirements=NOTHING,
            pylock=NOTHING,
            compiled=NOTHING,
            inputs=(),
            resolver={},
            pip=_package(pip),
            files=tuple(_package(wheel) for wheel in self.wheels),
        )
        accelerator = AcceleratorLock(
            spec_digest=NOTHING,
            asked={},
            dockerfile=self.parts.lock(self.root / "Dockerfile.cpu"),
            base=base,
            packages=packages,
        )
        return Lock(
            name="small",
            spec_digest=NOTHING,
            asked={},
            ignored=(),
            seed=1,
            determinism="strict",
            source=SourceLock(files=tuple(self.parts.lock(self.root / file, file) for file in files)),
            accelerators={"cpu": accelerator},
        )


def any_base() -> BaseLock:
    """A base that no engine has."""
    return BaseLock(
        requested="registry.example.org/base:1",
        source="registry",
        index_digest=None,
        manifest_digest="sha256:" + "b" * 64,
        config_digest="sha256:" + "c" * 64,
        diff_ids=("sha256:" + "d" * 64,),
        os="linux",
        architecture="amd64",
    )
