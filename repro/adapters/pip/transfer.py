"""Downloads inside the tool environment, next to `shim.py`, which runs this file by its path."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

__all__ = ["fetch_all"]

CHUNK = 1 << 20
ATTEMPTS = 5
WORKERS = 6


class _CannotResumeError(Exception):
    """The server sends a file from its start only."""


class _RefusedError(Exception):
    """The server will not send the file, however often it is asked."""


def _read(stream: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: stream.read(CHUNK), b"")


def _bodies(session: Any, url: str, start: int) -> Iterator[bytes]:
    """Yield a file's bytes from `start` on. Raises OSError where the other side goes away."""
    if url.startswith("file:"):
        with Path(unquote(urlsplit(url).path)).open("rb") as stream:
            stream.seek(start)
            yield from _read(stream)
        return
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with session.get(url, headers=headers, stream=True) as response:
        if start and response.status_code in (200, 416):
            raise _CannotResumeError
        if 400 <= response.status_code < 500:
            raise _RefusedError(f"{response.status_code} {response.reason}")
        response.raise_for_status()
        got, announced = 0, response.headers.get("Content-Length")
        for chunk in response.iter_content(CHUNK):
            got += len(chunk)
            yield chunk
        if announced is not None and got != int(announced):
            raise ConnectionError(f"{got} bytes came of {announced}")


def _fetch(session: Any, url: str, part: Path) -> str:
    """Download to `part`, going on where an earlier attempt ended; return the SHA-256 of the whole."""
    from pip._internal.exceptions import PipError

    for attempt in range(1, ATTEMPTS + 1):
        state = hashlib.sha256()
        with part.open("a+b") as stream:
            stream.seek(0)
            for chunk in _read(stream):
                state.update(chunk)
            try:
                for chunk in _bodies(session, url, stream.tell()):
                    stream.write(chunk)
                    state.update(chunk)
                return state.hexdigest()
            except _CannotResumeError:
                stream.truncate(0)
            except (OSError, PipError) as error:
                if attempt == ATTEMPTS or getattr(error, "errno", None) == errno.ENOSPC:
                    raise
        time.sleep(0.2 * 2**attempt)
    raise ConnectionError(f"{ATTEMPTS} attempts were not enough")


def fetch_all(
    files: Sequence[Mapping[str, str]], session: Callable[[], Any], say: Callable[..., None]
) -> None:
    """Download files in parallel.

    Args:
        files: `url` and `part`, the path to write to; what is there already is gone on with.
        session: makes one of pip's sessions; each thread has its own.
        say: called with `done=part, sha256=…` or `failed=part, why=…, errno=…` for each file.
    """
    from pip._internal.exceptions import PipError

    waiting = iter(files)

    def work() -> None:
        own = session()
        for file in waiting:
            try:
                say(done=file["part"], sha256=_fetch(own, file["url"], Path(file["part"])))
            except (OSError, PipError, _RefusedError) as error:
                say(failed=file["part"], why=str(error), errno=getattr(error, "errno", None))

    with ThreadPoolExecutor(WORKERS) as pool:
        for finished in as_completed([pool.submit(work) for _ in range(WORKERS)]):
            finished.result()
