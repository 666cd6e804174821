"""From requirement files to exact wheels in the cache."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from repro.adapters.cache import FileCache
from repro.adapters.pip.failure import explain, redact
from repro.adapters.pip.fetch import Wanted, fetch
from repro.adapters.pip.tools import Tools
from repro.errors import LockError
from repro.lock import PackageFile, PackageLock, Platform
from repro.ports import Progress
from repro.resolution import Inputs, Resolution, WheelIndex
from repro.resolve.compiled import parse_compiled, pins, with_hashes
from repro.resolve.platform import target

__all__ = ["PipResolver"]

Offer = Mapping[str, Any]

_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")


class PipResolver:
    """Fulfils `repro.ports.Resolver`.

    Args:
        cache: takes the wheels in, and holds the tools.
    """

    def __init__(self, cache: FileCache) -> None:
        self.cache = cache
        self.tools = Tools(cache)

    @contextmanager
    def _work(self) -> Iterator[Path]:
        work = self.cache.folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work) as name:
            yield Path(name)

    def resolve(
        self,
        inputs: Inputs,
        *,
        platform: Platform,
        previous: Sequence[PackageFile],
        upgrade: Sequence[str] | None,
        progress: Progress,
    ) -> Resolution:
        """Resolve and fetch.

        Raises:
            LockError: what is required cannot be had, or not without doubt.
            NetworkError: an index does not answer, or refuses.
        """
        wanted = target(platform)
        self.tools.prepare(progress)
        with self._work() as folder:
            task = _Task(self.tools, folder, _request(self.cache, inputs, wanted))
            task.stage(inputs, previous, upgrade)
            where = f"Python {platform.python} on {platform.os} {platform.architecture}"
            progress.start(f"resolve packages for {where}")
            compiled, offers = task.compile(upgrade)
            taken = task.report(compiled)
            files, warnings = _choose(taken, offers, inputs)
            held = task.fetch(files, self.cache, progress)
        return Resolution(
            compiled=with_hashes(compiled, {file.name: file.digest for file in held}),
            pip=self.tools.pip_wheel(),
            files=tuple(sorted(held, key=lambda file: file.name)),
            tools=dict(self.tools.versions),
            warnings=tuple(warnings),
        )

    def fetch(self, packages: PackageLock, *, root: Path, progress: Progress) -> None:
        """Hold every locked wheel in the cache; does no network work where all of them are there.

        Raises:
            LockError: kind `wheel-gone`, or `hash-contradiction` where another file has the name now.
            NetworkError: an index does not answer, or refuses.
        """
        missing = [file for file in (packages.pip, *packages.files) if self.cache.path(file.digest) is None]
        if not missing:
            return
        self.tools.prepare(progress)
        inputs = Inputs(requirements=(), documents={}, indexes=_indexes(packages, root))
        with self._work() as folder:
            task = _Task(self.tools, folder, _request(self.cache, inputs, target(packages.platform)))
            task.stage(inputs, (), ())
            progress.start("look up the locked wheels")
            offers = task.locate([file.name for file in missing if file.url is None])
            task.fetch(_served(missing, offers), self.cache, progress)


def _indexes(packages: PackageLock, root: Path) -> tuple[WheelIndex, ...]:
    """Return the lock's indexes with their packages bound to them, as when they were locked."""
    return tuple(
        WheelIndex(
            name=index.name,
            url=index.url if "://" in index.url else str(root / index.url),
            flat=index.flat,
            packages=tuple(file.name for file in packages.files if file.index == index.name),
        )
        for index in packages.indexes
    )


def _served(missing: Sequence[PackageFile], offers: Mapping[str, Sequence[Offer]]) -> list[Wanted]:
    """Pair each locked wheel with the place that serves it now."""
    served, gone = [], []
    for file in missing:
        urls = [offer["url"] for offer in offers.get(file.name, ()) if offer["filename"] == file.filename]
        urls = [file.url] if file.url else urls
        if not urls:
            gone.append(f"{file.filename} ({file.index})")
            continue
        served.append(
            Wanted(
                name=file.name,
                version=file.version,
                url=urls[0],
                index=file.index,
                published=file.digest,
                allowed=None,
                requested=file.requested,
            )
        )
    if gone:
        raise LockError(
            "wheel-gone",
            f"no index serves these locked wheels any more: {', '.join(gone)}",
            remedy="put the files into the cache of a machine that has them, or lock again",
        )
    return served


def _request(cache: FileCache, inputs: Inputs, wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cache": str(cache.folder),
        "compiled": "compiled.txt",
        "constraints": list(inputs.constraints),
        "indexes": [{**index.tree(), "url": _expand(index.url)} for index in inputs.indexes],
        "offers": "offers.json",
        "pins": "pins.txt",
        "pre": inputs.prereleases,
        "replaces_default": inputs.replaces_default,
        "report": "report.json",
        "requirements": list(inputs.requirements),
        "target": dict(wanted),
    }


def _expand(url: str) -> str:
    """Put environment variables into an address, as pip does in requirement files."""
    return _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), url)


class _Task:
    """One resolution in a folder of its own."""

    def __init__(self, tools: Tools, folder: Path, request: dict[str, Any]) -> None:
        self.tools = tools
        self.folder = folder / "project"
        self.request = request

    def stage(self, inputs: Inputs, previous: Sequence[PackageFile], upgrade: Sequence[str] | None) -> None:
        """Lay out the inputs, and the pins to keep where pip-compile looks for them."""
        self.folder.mkdir()
        for path, text in inputs.documents.items():
            place = self.folder / PurePosixPath(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        if upgrade is None or upgrade:
            kept = "".join(f"{file.name}=={file.version}\n" for file in previous if file.index != "direct")
            (self.folder / self.request["compiled"]).write_text(kept, encoding="utf-8")

    def _run(self, command: str, **more: Any) -> None:
        silent: list[Mapping[str, Any]] = []
        unbuilt: dict[str, list[str]] = {}

        def on_event(event: Mapping[str, Any]) -> None:
            unbuilt.update(event.get("unbuilt", {}))
            if "silent" in event:
                silent.append(event)

        code, said = self.tools.run(command, {**self.request, **more}, self.folder, on_event)
        if troubles := [event for event in silent if code or not event["absent"]]:
            told = "\n".join(f"{event['why']} for url: {event['silent']}" for event in troubles)
            said = f"{redact(told)}\n{said}"
        if code or any(not event["absent"] for event in silent):
            raise explain(said, self.tools.versions, unbuilt)

    def _offers(self) -> dict[str, list[Offer]]:
        found = json.loads((self.folder / self.request["offers"]).read_text(encoding="utf-8"))
        return dict(found)

    def locate(self, names: Sequence[str]) -> dict[str, list[Offer]]:
        """Return what each index offers of the named packages."""
        self._run("locate", names=list(names))
        return self._offers()

    def fetch(self, files: Sequence[Wanted], cache: FileCache, progress: Progress) -> list[PackageFile]:
        """Hold files in the cache and return the lock's records."""
        return fetch(files, self.tools, cache, self.folder, self.request["indexes"], progress)

    def compile(self, upgrade: Sequence[str] | None) -> tuple[str, dict[str, list[Offer]]]:
        """Return the compiled text, and what each index offers of every package in it."""
        self._run("compile", upgrade=None if upgrade is None else list(upgrade))
        text = (self.folder / self.request["compiled"]).read_text(encoding="utf-8")
        return text, self._offers()

    def report(self, compiled: str) -> list[Mapping[str, Any]]:
        """Return pip's own answer to which file it takes for each pin.

        Raises:
            LockError: kind `resolvers-disagree`.
        """
        entries = parse_compiled(compiled, where="pip-compile")
        (self.folder / self.request["pins"]).write_text(pins(entries), encoding="utf-8")
        self._run("report")
        taken = json.loads((self.folder / self.request["report"]).read_text(encoding="utf-8"))["install"]
        names = {canonicalize_name(item["metadata"]["name"]) for item in taken}
        if odd := names.symmetric_difference(entry.name for entry in entries):
            raise LockError(
                "resolvers-disagree",
                f"pip and pip-compile do not agree whether {', '.join(sorted(odd))} is needed",
                remedy="name these packages in a requirements file, with the versions you want",
            )
        return list(taken)


def _choose(
    taken: Sequence[Mapping[str, Any]], offers: Mapping[str, Sequence[Offer]], inputs: Inputs
) -> tuple[list[Wanted], list[str]]:
    """Pair each file pip takes with what its index says of it.

    Raises:
        LockError: kind `index-ambiguity`.
    """
    chosen, warnings = [], []
    for item in taken:
        name, version = canonicalize_name(item["metadata"]["name"]), item["metadata"]["version"]
        url = item["download_info"]["url"]
        offer = next((offer for offer in offers.get(name, ()) if redact(offer["url"]) == redact(url)), None)
        wanted = Wanted(
            name=name,
            version=version,
            url=offer["url"] if offer else url,
            index=offer["index"] if offer else "direct",
            published=f"sha256:{offer['sha256']}" if offer and offer["sha256"] else None,
            allowed=inputs.allowed.get(name),
            requested=item["requested"],
        )
        chosen.append(wanted)
        if offer and offer["yanked"] is not None:
            reason = f": {offer['yanked']}" if offer["yanked"] else ""
            warnings.append(f"{name} {version} was yanked from its index{reason}")
    _refuse_doubt(chosen, offers, inputs)
    return chosen, warnings


def _refuse_doubt(chosen: Sequence[Wanted], offers: Mapping[str, Sequence[Offer]], inputs: Inputs) -> None:
    bound = {name for index in inputs.indexes for name in index.packages} | set(inputs.direct)
    doubtful = []
    for file in chosen:
        indexes = sorted({offer["index"] for offer in offers.get(file.name, ())})
        if len(indexes) > 1 and file.name not in bound:
            doubtful.append(f"{file.name} ({' and '.join(indexes)})")
    if doubtful:
        raise LockError(
            "index-ambiguity",
            f"more than one index offers {'; '.join(sorted(doubtful))}: whoever runs one could put their own "
            "package in place of the other's",
            where="accelerators.*.indexes",
            remedy="say which index each comes from, under indexes … packages in repro.yaml",
        )
