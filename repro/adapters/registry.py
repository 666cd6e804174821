"""The read side of the OCI distribution API: what a reference names, every hash checked by us.

Protocol: OCI Distribution Specification v1.1, and the token authentication of Docker's registries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import requests
from pydantic import ValidationError

from repro.adapters.reference import HUB, Reference
from repro.adapters.registry_login import login
from repro.digest import Digest, digest_bytes, is_digest
from repro.errors import LockError, NetworkError
from repro.lock import BaseLock

__all__ = ["Registry", "RegistryImage"]

_HUB_HOST = "registry-1.docker.io"
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS))
_MAX_BYTES = 8 << 20
_PATIENCE_SECONDS = (10, 60)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


def _is_local(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    return name in ("localhost", "::1") or name.startswith("127.")


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image as its registry describes it."""

    lock: BaseLock
    layers: tuple[str, ...]
    """Digests of the blobs, lowest layer first."""
    environment: tuple[str, ...]


class Registry:
    """One repository of one registry. A context manager; `login.problem` names a helper that failed us."""

    def __init__(self, reference: Reference, environment: Mapping[str, str]) -> None:
        host = _HUB_HOST if reference.registry == HUB else reference.registry
        self._scheme = "http" if _is_local(host) else "https"
        self._root = f"{self._scheme}://{host}/v2/{reference.repository}"
        self._reference = reference
        self.login = login(reference.registry, environment)
        self._session = requests.Session()
        self._session.auth = lambda request: request  # or requests would send what ~/.netrc says

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def base(self, requested: str, *, architecture: str) -> RegistryImage:
        """Resolve the reference: index → manifest of this platform → config → diff ids.

        Args:
            requested: the reference as it was written.
            architecture: as images say it, such as `amd64`.

        Raises:
            LockError: `base-not-found` or `base-platform-absent`.
            NetworkError: `registry-unreachable`, `registry-refused`, `credential-helper-missing`,
                `registry-busy`, `registry-failed` or `registry-wrong-bytes`.
        """
        document, digest = self._document(f"manifests/{self._reference.version}", self._reference.version)
        index_digest = None
        if document.get("mediaType") in _INDEXES or "manifests" in document:
            index_digest = digest
            chosen = self._choose(document, architecture)
            document, digest = self._document(f"manifests/{chosen}", chosen)
        config_digest = (document.get("config") or {}).get("digest", "")
        if not is_digest(config_digest):
            raise self._failed("the registry's manifest names no config: its format is too old")
        config, _ = self._document(f"blobs/{config_digest}", config_digest)
        if config.get("architecture") != architecture:
            raise self._no_platform([str(config.get("architecture"))], architecture)
        try:
            lock = BaseLock(
                requested=requested,
                source="registry",
                index_digest=index_digest,
                manifest_digest=digest,
                config_digest=config_digest,
                diff_ids=tuple((config.get("rootfs") or {}).get("diff_ids") or ()),
                os=str(config.get("os")),
                architecture=architecture,
            )
            layers = tuple(str(layer["digest"]) for layer in document.get("layers") or ())
            environment = tuple(map(str, (config.get("config") or {}).get("Env") or ()))
            return RegistryImage(lock, layers, environment)
        except (ValidationError, AttributeError, KeyError, TypeError):
            raise self._failed("the registry's config is not that of an image") from None

    def manifest(self) -> tuple[dict[str, Any], Digest]:
        """Return the manifest that the reference names, and its digest.

        Raises:
            LockError: `base-not-found`.
            NetworkError: as `base`.
        """
        return self._document(f"manifests/{self._reference.version}", self._reference.version)

    def read(self, kind: Literal["manifests", "blobs"], digest: str, *, limit: int) -> bytes:
        """Return the bytes with this digest, checked against it.

        Raises:
            LockError: `base-not-found`.
            NetworkError: as `base`.
        """
        data, _ = self._checked(f"{kind}/{digest}", digest)
        if len(data) > limit:
            raise self._failed(f"{digest} has more than {limit} bytes")
        return data

    def blob(self, digest: str) -> Iterator[bytes]:
        """Yield the bytes of a blob, after `manifest`. They are for the caller to check.

        Raises:
            NetworkError: as `base`.
        """
        with self._send(f"{self._root}/blobs/{digest}", {}) as response:
            self._check(response.status_code)
            try:
                yield from response.iter_content(1 << 20)
            except requests.exceptions.RequestException:
                raise self._failed(f"the connection broke within {digest}") from None

    def _choose(self, index: Mapping[str, Any], architecture: str) -> str:
        """Digest of the first manifest for Linux on this architecture; attestations have no platform."""
        offered: dict[str, str] = {}
        for entry in index.get("manifests") or ():
            platform = entry.get("platform") or {}
            if platform.get("os") == "linux" and is_digest(entry.get("digest", "")):
                offered.setdefault(platform.get("architecture", ""), entry["digest"])
        if architecture not in offered:
            raise self._no_platform(sorted(offered), architecture)
        return offered[architecture]

    def _document(self, path: str, version: str) -> tuple[dict[str, Any], Digest]:
        """Fetch JSON; return it and the digest of its bytes."""
        data, digest = self._checked(path, version)
        if (document := _object(data)) is None:
            raise self._failed("the registry's answer is not a JSON object")
        return document, digest

    def _checked(self, path: str, version: str) -> tuple[bytes, Digest]:
        """Fetch bytes; return them and their digest, which must be `version` where that is one."""
        data = self._get(path)
        digest = digest_bytes(data)
        if is_digest(version) and digest != version:
            raise NetworkError(
                "registry-wrong-bytes",
                f"the registry answered with {digest} where {version} was asked for",
                where=self._reference.name,
                remedy="ask another registry; do not use what this one gave",
            )
        return data, digest

    def _get(self, path: str) -> bytes:
        with self._ask("GET", f"{self._root}/{path}", {"Accept": _ACCEPT}) as response:
            return self._body(response)

    def _ask(
        self, method: str, url: str, headers: Mapping[str, str], body: Callable[[], Any] = lambda: None
    ) -> requests.Response:
        """Send a request; where the registry wants to know who we are, say so and send it once more.

        Args:
            body: gives what to send, from its start each time.
        """
        response = self._send(url, headers, method=method, data=body())
        if response.status_code != requests.codes.unauthorized:
            return response
        response.close()
        self._authorise(response.headers.get("WWW-Authenticate", ""))
        return self._send(url, headers, method=method, data=body())

    def _body(self, response: requests.Response) -> bytes:
        self._check(response.status_code)
        data = bytes(response.raw.read(_MAX_BYTES + 1, decode_content=True))
        if len(data) > _MAX_BYTES:
            raise self._failed(f"the registry's answer is larger than {_MAX_BYTES} bytes")
        return data

    def _send(
        self, url: str, headers: Mapping[str, str], *, method: str = "GET", **options: Any
    ) -> requests.Response:
        try:
            return self._session.request(
                method, url, headers=headers, timeout=_PATIENCE_SECONDS, stream=True, **options
            )
        except requests.exceptions.SSLError:
            reason = "its certificate is not trusted here"
        except requests.exceptions.RequestException as error:
            reason = (
                "no answer in time" if isinstance(error, requests.exceptions.Timeout) else "no connection"
            )
        raise NetworkError(
            "registry-unreachable",
            f"the registry cannot be reached: {reason}",
            where=urlsplit(url).netloc,
            remedy="check network, proxy and REQUESTS_CA_BUNDLE, or pull the image with the engine first",
        )

    def _authorise(self, challenge: str) -> None:
        """Answer a challenge, with credentials if we have any."""
        scheme, _, rest = challenge.partition(" ")
        parameters = dict(_PARAMETER.findall(rest))
        known = (self.login.user, self.login.secret) if self.login.user is not None else None
        if scheme.lower() == "basic" and known:
            self._session.auth = requests.auth.HTTPBasicAuth(str(known[0]), str(known[1]))
            return
        realm = parameters.pop("realm", "")
        if scheme.lower() != "bearer" or urlsplit(realm).scheme not in {"https", self._scheme}:
            raise self._refused()
        wanted = {key: value for key, value in parameters.items() if key in ("service", "scope")}
        with self._send(realm, {}, params=wanted, auth=known or self._session.auth) as answer:
            document = _object(self._body(answer)) or {}
        token = document.get("token") or document.get("access_token")
        if not token:
            raise self._refused()
        self._session.headers["Authorization"] = f"Bearer {token}"

    def _check(self, status: int) -> None:
        if status in (requests.codes.unauthorized, requests.codes.forbidden):
            raise self._refused()
        if status == requests.codes.not_found:
            raise LockError(
                "base-not-found",
                f"the registry has no {self._reference.repository} {self._reference.version}",
                where=self._reference.name,
                remedy="name an image that exists in repro.yaml, or load a kept copy into the engine",
            )
        if status == requests.codes.too_many_requests:
            raise NetworkError(
                "registry-busy",
                "the registry wants no more requests from here for now",
                where=self._reference.name,
                remedy="log in with `docker login`, or wait",
            )
        if status >= requests.codes.bad_request:
            raise self._failed(f"the registry answered with status {status}")

    def _refused(self) -> NetworkError:
        if self.login.problem is not None:
            return NetworkError(
                "credential-helper-missing",
                f"the registry wants credentials, and they cannot be had: {self.login.problem}",
                where=self._reference.name,
                remedy="install that helper, or take it out of docker's config.json and log in again",
            )
        return NetworkError(
            "registry-refused",
            "the registry wants other credentials for this image, or has no such image",
            where=self._reference.name,
            remedy="log in with `docker login`, or correct the name in repro.yaml",
        )

    def _failed(self, message: str) -> NetworkError:
        remedy = "try again later, or pull the image with the engine first"
        return NetworkError("registry-failed", message, where=self._reference.name, remedy=remedy)

    def _no_platform(self, offered: list[str], architecture: str) -> LockError:
        return LockError(
            "base-platform-absent",
            f"the image is not there for linux/{architecture}, only for {', '.join(offered) or 'nothing'}",
            where=self._reference.name,
            remedy="choose a base that is, or lock on a machine of that architecture",
        )
