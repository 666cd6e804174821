"""What was attached to an image in a registry: OCI 1.1 referrers, and the index that stands in for them.

Protocol: OCI Distribution Specification v1.1, "Listing Referrers" and "Referrers Tag Schema". A registry
without that list gets an index under the tag `sha256-<hex>`, kept by its clients, who may all write at once.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import requests

from repro.adapters.registry_push import RegistryWriter
from repro.digest import canonical_json, digest_bytes, hex_of, is_digest
from repro.errors import LockError, NetworkError, TrustError

__all__ = ["EMPTY", "INDEX_TYPE", "MANIFEST_TYPE", "Referrers"]

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_MAX_REFERRERS = 1024
_ATTEMPTS = 12
_SETTLE_SECONDS = 0.2
"""How long after a write the index is read back. Who else read it before ours has written theirs by then."""


class Referrers(RegistryWriter):
    """Reads and adds what refers to one image. Methods raise as `Registry.base` does."""

    def size(self, image: str) -> int:
        """Return the size in bytes of the image manifest with this digest.

        Raises:
            TrustError: kind `E_IMAGE` where the registry does not hold it.
        """
        try:
            data, _ = self._checked(f"manifests/{image}", image)
        except LockError:
            raise TrustError(
                "E_IMAGE",
                f"the registry does not hold the signed image {image}",
                where=self._reference.name,
                remedy="push the image there first, as it was signed",
            ) from None
        return len(data)

    def attached(self, subject: str) -> list[dict[str, Any]]:
        """Return the descriptors of everything attached to an image, each once.

        They are hints: whoever may push adds to them and takes away. What they name is checked
        by its digest.
        """
        listed = self._listed(subject)
        tagged, _ = self._tagged(subject)
        found: dict[str, dict[str, Any]] = {}
        for descriptor in (*(listed or ()), *tagged):
            if is_digest(str(descriptor.get("digest"))):
                found.setdefault(descriptor["digest"], descriptor)
        if len(found) > _MAX_REFERRERS:
            raise self._failed(f"more than {_MAX_REFERRERS} things are attached to the image")
        return list(found.values())

    def document(self, digest: str) -> dict[str, Any]:
        """Return the manifest with this digest, checked against it."""
        return self._document(f"manifests/{digest}", digest)[0]

    def attach(
        self,
        subject: tuple[str, int],
        artifact_type: str,
        layers: Sequence[Mapping[str, Any]],
        annotations: Mapping[str, str],
    ) -> str:
        """Attach an artifact whose blobs are pushed already; the same once more changes nothing.

        Args:
            subject: digest and size of the image's manifest.
            artifact_type: what the artifact is.
            layers: descriptors of its blobs.
            annotations: of its manifest.

        Returns:
            digest of the artifact's manifest.

        Raises:
            NetworkError: kind `registry-contended` where others kept changing the index.
        """
        self.push_blob(digest_bytes(EMPTY), len(EMPTY), lambda: iter((EMPTY,)))
        data = canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "artifactType": artifact_type,
                "config": {"mediaType": _EMPTY_TYPE, "digest": digest_bytes(EMPTY), "size": len(EMPTY)},
                "layers": list(layers),
                "subject": {"mediaType": MANIFEST_TYPE, "digest": subject[0], "size": subject[1]},
                "annotations": dict(annotations),
            }
        )
        answer = self.push_manifest(data, MANIFEST_TYPE) or {}
        digest = digest_bytes(data)
        keeps_list = any(name.lower() == "oci-subject" for name in answer)
        if not keeps_list and digest not in {entry.get("digest") for entry in self._listed(subject[0]) or ()}:
            descriptor = {
                "mediaType": MANIFEST_TYPE,
                "digest": digest,
                "size": len(data),
                "artifactType": artifact_type,
                "annotations": dict(annotations),
            }
            self._add(subject[0], descriptor)
        return digest

    def _add(self, subject: str, descriptor: Mapping[str, Any]) -> None:
        """Add to the index under the tag: read, write, and read back later, for others may have written too.

        Whoever overwrote us read the index before we wrote it, and has written it when we look again; then
        it is our turn once more, after a wait of our own. Entries of others are always kept.
        """
        for attempt in range(_ATTEMPTS):
            entries, entity = self._tagged(subject)
            if descriptor["digest"] in {entry.get("digest") for entry in entries}:
                if attempt:
                    return
                time.sleep(_SETTLE_SECONDS)
                continue
            index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [*entries, descriptor]}
            self.push_manifest(
                canonical_json(index), INDEX_TYPE, tag=f"sha256-{hex_of(subject)}", unless_changed=entity
            )
            time.sleep(_SETTLE_SECONDS * (1 + attempt * random.random()))  # noqa: S311 - not a secret
        raise NetworkError(
            "registry-contended",
            f"others kept changing what is attached to {subject}",
            where=self._reference.name,
            remedy="try again: what was pushed is there, and only its entry in the index is missing",
        )

    def _listed(self, subject: str) -> list[dict[str, Any]] | None:
        """What the registry's own list says; None where it keeps none."""
        found: list[dict[str, Any]] = []
        url: str | None = f"{self._root}/referrers/{subject}"
        while url is not None and len(found) <= _MAX_REFERRERS:
            with self._ask("GET", url, {"Accept": INDEX_TYPE}) as response:
                if response.status_code in (
                    requests.codes.not_found,
                    requests.codes.method_not_allowed,
                    requests.codes.bad_request,
                ):
                    return None
                found += _entries(self._body(response))
                further = response.links.get("next", {}).get("url")
                url = requests.compat.urljoin(url, further) if further else None
        return found

    def _tagged(self, subject: str) -> tuple[list[dict[str, Any]], str | None]:
        """Entries of the index under the tag, and its entity tag."""
        url = f"{self._root}/manifests/sha256-{hex_of(subject)}"
        with self._ask("GET", url, {"Accept": INDEX_TYPE}) as response:
            if response.status_code == requests.codes.not_found:
                return [], None
            return _entries(self._body(response)), response.headers.get("ETag")


def _entries(data: bytes) -> list[dict[str, Any]]:
    """Descriptors of an index; whatever else stands there is none."""
    try:
        index = json.loads(data)
    except (ValueError, RecursionError):
        return []
    entries = index.get("manifests") if isinstance(index, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
