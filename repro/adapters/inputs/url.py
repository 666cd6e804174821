"""One file by HTTP. Its bytes are its identity."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import requests

from repro.errors import LockError, NetworkError
from repro.ports import Progress
from repro.resolution import Found, Reference

__all__ = ["UrlSource", "download", "without_secret"]

ATTEMPTS = 5
TIMEOUT_S = 60
_CHUNK = 1 << 20
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")


def without_secret(url: str) -> str:
    """Take user name and password, or what stands for them, out of a URL."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _refused(url: str, response: requests.Response) -> NetworkError:
    return NetworkError(
        "download-refused",
        f"the server answered {response.status_code} {response.reason}",
        where=without_secret(url),
        remedy="check the address; give credentials in .netrc, or as ${VARIABLE} in the address",
    )


def download(
    url: str,
    target: Path,
    progress: Progress,
    *,
    session: requests.Session,
    headers: dict[str, str] | None = None,
) -> requests.Response:
    """Write what a URL serves to `target`, going on where a broken connection ended.

    Raises:
        NetworkError: kind `download-refused` or `download-failed`.
    """
    for attempt in range(1, ATTEMPTS + 1):
        start = target.stat().st_size if target.exists() else 0
        asked = {"Accept-Encoding": "identity", **(headers or {})}
        if start:
            asked["Range"] = f"bytes={start}-"
        try:
            with session.get(url, headers=asked, stream=True, timeout=TIMEOUT_S) as response:
                if 400 <= response.status_code < 500 and response.status_code != 416:
                    raise _refused(url, response)
                response.raise_for_status()
                with target.open("ab" if response.status_code == 206 else "wb") as stream:
                    for chunk in response.iter_content(_CHUNK):
                        stream.write(chunk)
                        progress.advance(len(chunk), target.name)
                return response
        except requests.RequestException as error:
            if getattr(getattr(error, "response", None), "status_code", None) == 416:
                target.unlink()
            if attempt == ATTEMPTS:
                raise NetworkError(
                    "download-failed",
                    f"{ATTEMPTS} attempts were not enough: {type(error).__name__}",
                    where=without_secret(url),
                    remedy="check the network, and run again",
                ) from None
        time.sleep(0.1 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


class UrlSource:
    """Fulfils `repro.ports.ArtifactSource` for `url:`."""

    def materialise(self, reference: Reference, into: Path, progress: Progress) -> Found:
        """Download one file below the last name of its path.

        Raises:
            LockError: kind `url-malformed`.
            NetworkError: kind `download-refused` or `download-failed`.
        """
        url = _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), reference.text)
        parts = urlsplit(url)
        name = unquote(parts.path.rpartition("/")[2])
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or name in ("", ".", "..")
            or "/" in name
        ):
            raise LockError(
                "url-malformed",
                "this is no address of a file by HTTP",
                where=without_secret(reference.text),
                remedy="write https://HOST/PATH/FILE, or use path: for a file of the project",
            )
        with requests.Session() as session:
            response = download(url, into / name, progress, session=session)
        hints = {name: etag} if (etag := response.headers.get("ETag")) else {}
        return Found(requested=without_secret(reference.text), hints=hints)
