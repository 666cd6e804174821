"""Things a run names that do not lie in its folder: image, models, data sets."""

from __future__ import annotations

from collections.abc import Sequence

from repro.attest.demands import FindFiles, FindImage
from repro.attest.outcome import CannotTell
from repro.errors import ReproError, TrustError
from repro.image import ImageIdentity
from repro.lock import ArtifactLock

__all__ = ["check_artifacts", "check_image"]


def check_image(signed: ImageIdentity, find: FindImage) -> str:
    """Compare the image that lies where the auditor said with the one signed.

    Raises:
        TrustError: kind `E_IMAGE`.
        CannotTell: where there is none, or it cannot be looked at.
    """
    try:
        found = find(signed)
    except TrustError:
        raise
    except ReproError as error:
        raise CannotTell(str(error)) from None
    if found is None:
        raise CannotTell("no image lies where it was looked for")
    if found != signed:
        message = f"config {found.config_digest} was found where {signed.config_digest} was signed"
        raise TrustError("E_IMAGE", message)
    return f"the image is the one signed, {signed.config_digest}"


def check_artifacts(locked: Sequence[ArtifactLock], ignored: Sequence[str], find: FindFiles) -> str:
    """Compare models or data sets, file by file, with what was locked.

    What was ignored when they were locked is what the signed lock says, and nothing that a verifier chooses.

    Raises:
        TrustError: kind `E_INPUT`.
        CannotTell: where one is not there, or cannot be looked at.
    """
    for artifact in locked:
        try:
            found = find(artifact, ignored)
        except ReproError as error:
            raise CannotTell(str(error)) from None
        if found is None:
            raise CannotTell(f"{artifact.name} is not there")
        there = {file.path: file.digest for file in found}
        for file in artifact.files:
            if there.get(file.path) != file.digest:
                raise TrustError("E_INPUT", f"{file.path!a} is not what was locked", where=artifact.name)
    return f"{len(locked)} are those locked"
