"""A run as a CycloneDX 1.6 bill of materials, written by `cyclonedx-python-lib`.

Packages, models, data sets, source, image and devices are components with their hashes. Nothing in it is
of the moment it is written: the same run gives the same document.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.spdx import fixup_id
from packageurl import PackageURL

from repro.digest import Digest, hex_of
from repro.errors import TrustError
from repro.host import HostFacts
from repro.lock import AcceleratorLock, ArtifactLock, FileLock, Lock, PackageFile
from repro.manifest import Manifest
from repro.statement import MANIFEST_NAME

__all__ = ["cyclonedx_json"]


def _hashes(digest: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=hex_of(digest))]


def _properties(values: dict[str, Any]) -> list[Property]:
    return [
        Property(name=f"repro:{name}", value=str(value))
        for name, value in values.items()
        if value is not None
    ]


def _component(kind: ComponentType, ref: str, name: str, **members: Any) -> Component:
    return Component(type=kind, bom_ref=BomRef(ref), name=name, **members)


def _files(owner: str, files: Iterable[FileLock]) -> list[Component]:
    return [
        _component(
            ComponentType.FILE,
            f"{owner}/{file.path}",
            file.path,
            hashes=_hashes(file.digest),
            properties=_properties({"size": file.size}),
        )
        for file in files
    ]


def _package(file: PackageFile) -> Component:
    return _component(
        ComponentType.LIBRARY,
        f"package/{file.name}",
        file.name,
        version=file.version,
        purl=PackageURL(
            "pypi", name=file.name, version=file.version, qualifiers={"file_name": file.filename}
        ),
        hashes=_hashes(file.digest),
        properties=_properties(
            {"index": file.index, "hash-source": file.hash_source, "requested": str(file.requested).lower()}
        ),
    )


def _hub_url(artifact: ArtifactLock) -> PackageURL | None:
    if artifact.kind != "hub" or artifact.commit is None or artifact.requested.count("/") != 1:
        return None
    owner, _, name = artifact.requested.partition("/")
    return PackageURL("huggingface", namespace=owner, name=name, version=artifact.commit)


def _licences(text: str | None) -> list[DisjunctiveLicense]:
    """By its SPDX identifier where it has one, else by the name it was given."""
    if not text:
        return []
    known = fixup_id(text)
    return [DisjunctiveLicense(id=known) if known else DisjunctiveLicense(name=text)]


def _artifact(kind: ComponentType, artifact: ArtifactLock) -> Component:
    """A model or data set. Its only file's hash is its own; of several, each file carries its hash."""
    ref = f"{kind.value}/{artifact.name}"
    only = artifact.files[0].digest if len(artifact.files) == 1 else None
    return _component(
        kind,
        ref,
        artifact.name,
        version=artifact.commit,
        purl=_hub_url(artifact),
        licenses=_licences(artifact.licence),
        hashes=_hashes(only) if only else [],
        properties=_properties(
            {"kind": artifact.kind, "requested": artifact.requested, "revision": artifact.requested_revision}
        ),
        components=_files(ref, artifact.files),
    )


def _image(manifest: Manifest) -> Component | None:
    if manifest.image is None:
        return None
    identity = manifest.image.identity
    return _component(
        ComponentType.CONTAINER,
        "image",
        f"{manifest.project}-{manifest.accelerator}",
        version=identity.config_digest,
        hashes=_hashes(identity.manifest_digest),
        properties=_properties({"platform": f"{identity.os}/{identity.architecture}", "size": identity.size}),
    )


def _base(locked: AcceleratorLock) -> Component:
    digest = locked.base.manifest_digest or locked.base.config_digest
    return _component(
        ComponentType.CONTAINER,
        "base",
        locked.base.requested,
        version=locked.base.config_digest,
        hashes=_hashes(digest),
        properties=_properties({"platform": f"{locked.base.os}/{locked.base.architecture}"}),
    )


def _machine(host: HostFacts) -> list[Component]:
    """Devices and drivers that the run used."""
    found = [
        _component(
            ComponentType.DEVICE,
            f"device/{device.vendor}/{index}",
            device.name or device.name_start or device.vendor,
            properties=_properties(
                {"vendor": device.vendor, "arch": device.arch, "memory-mib": device.memory_mib}
            ),
        )
        for index, device in enumerate(host.devices)
    ]
    drivers = {"nvidia": host.driver.nvidia, "amdgpu": host.driver.amd}
    found += [
        _component(ComponentType.DEVICE_DRIVER, f"driver/{name}", name, version=driver.version)
        for name, driver in drivers.items()
        if driver is not None and driver.version
    ]
    return found


def _run(manifest: Manifest, manifest_digest: Digest, lock: Lock) -> Component:
    git = lock.source.git
    return _component(
        ComponentType.APPLICATION,
        "run",
        manifest.project,
        version=manifest.run_id,
        properties=_properties(
            {
                "manifest": manifest_digest,
                "sequence": manifest.sequence,
                "accelerator": manifest.accelerator,
                "runtime": manifest.runtime,
                "seed": manifest.seed,
                "determinism": manifest.determinism,
                "source-commit": git.commit if git else None,
            }
        ),
        components=_files("source", lock.source.files),
    )


def _moment(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise TrustError("E_MANIFEST", "created_at is no time", where=MANIFEST_NAME) from None


def cyclonedx_json(manifest: Manifest, manifest_digest: Digest, lock: Lock) -> str:
    """Write the bill of materials.

    Args:
        manifest: the signed run.
        manifest_digest: digest of the bytes of `manifest.json`; the document's serial number follows from it.
        lock: the run's lock; it holds the accelerator of the manifest.

    Raises:
        TrustError: kind `E_MANIFEST` where the manifest, which nobody verified, states no time.
    """
    locked = lock.accelerators[manifest.accelerator]
    packages = [_package(file) for file in locked.packages.files]
    models = [_artifact(ComponentType.MACHINE_LEARNING_MODEL, one) for one in lock.models]
    datasets = [_artifact(ComponentType.DATA, one) for one in lock.datasets]
    image, base = _image(manifest), _base(locked)
    run, machine = _run(manifest, manifest_digest, lock), _machine(manifest.host)
    within = [*packages, base]
    direct = [*([image] if image else within), *models, *datasets, *machine]
    tool = _component(ComponentType.APPLICATION, "repro", "repro", version=manifest.tool.version)
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"https://repro-manifest/run/{hex_of(manifest_digest)}"),
        metadata=BomMetaData(
            component=run,
            timestamp=_moment(manifest.created_at),
            tools=ToolRepository(components=[tool]),
        ),
        components=[*packages, *models, *datasets, base, *machine, *([image] if image else [])],
        dependencies=[_needs(run, direct), *([_needs(image, within)] if image else [])],
    )
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _needs(component: Component, others: Iterable[Component]) -> Dependency:
    return Dependency(component.bom_ref, [Dependency(other.bom_ref) for other in others])
