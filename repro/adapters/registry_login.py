"""Credentials that `docker login` keeps: read, never written, never said.

A credential helper that is missing or has no name does not stop us: public images
need none. What is wrong is returned beside, so that a refusal can name it.
"""

from __future__ import annotations

import base64
import binascii
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.credentials import Store
from docker.credentials.errors import CredentialsNotFound, StoreError

from repro.adapters.reference import HUB

__all__ = ["Login", "docker_config", "helper_problems", "login"]

_HUB_KEY = "https://index.docker.io/v1/"


@dataclass(frozen=True, slots=True)
class Login:
    """What is known of a registry's credentials. `problem` names a helper that could not be asked."""

    user: str | None = None
    secret: str | None = None
    problem: str | None = None

    def __repr__(self) -> str:
        return f"Login(known={self.user is not None}, problem={self.problem!r})"


def docker_config(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the docker command's configuration; empty where there is none or it cannot be read."""
    folder = environment.get("DOCKER_CONFIG") or Path(environment.get("HOME", "/")) / ".docker"
    try:
        config = json.loads((Path(folder) / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _problem(registry: str, helper: str) -> str | None:
    if not helper:
        return f"empty-helper:{registry}"
    if shutil.which(f"docker-credential-{helper}") is None:
        return f"helper-missing:docker-credential-{helper}"
    return None


def helper_problems(config: Mapping[str, Any]) -> list[str]:
    """Name every credential helper of a docker configuration that cannot work here."""
    named = dict(config.get("credHelpers") or {})
    if "credsStore" in config:
        named["every registry"] = config["credsStore"]
    return [found for registry, helper in named.items() if (found := _problem(registry, helper))]


def _stored(entry: Mapping[str, Any]) -> Login:
    try:
        user, _, secret = base64.b64decode(entry.get("auth") or "").decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return Login(problem="auth-unreadable")
    return Login(user, secret) if user else Login()


def login(registry: str, environment: Mapping[str, str]) -> Login:
    """Look up the credentials of a registry.

    Args:
        registry: host and port as in a reference.
        environment: for `DOCKER_CONFIG` and `HOME`.
    """
    config = docker_config(environment)
    key = _HUB_KEY if registry == HUB else registry
    helpers = config.get("credHelpers") or {}
    helper = helpers.get(key, helpers.get(registry, config.get("credsStore")))
    stored = (config.get("auths") or {}).get(key) or {}
    if helper is None or stored.get("auth"):
        return _stored(stored)
    if (problem := _problem(registry, helper)) is not None:
        return Login(problem=problem)
    try:
        store: Any = Store(helper)
        answer = store.get(key)
    except CredentialsNotFound:
        return Login()
    except StoreError:
        return Login(problem=f"helper-failed:docker-credential-{helper}")
    return Login(answer["Username"], answer["Secret"])
