"""Ask a time-stamping authority over HTTP (RFC 3161 section 3.4)."""

from __future__ import annotations

from typing import Any

import requests

from repro.errors import NetworkError, TrustError

__all__ = ["HttpTimestamper"]

_MAX_BYTES = 64 << 10
_PATIENCE_SECONDS = (10, 30)


class HttpTimestamper:
    """Fulfils `repro.ports.Timestamper`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def stamp(self, message: bytes) -> bytes:
        """Return the DER of a TimeStampResp over SHA-256 of `message`.

        Whether the authority is to be believed is decided by whoever verifies.

        Raises:
            TrustError: kind `tsa-package-missing` where the extra `tsa` is not installed.
            NetworkError: kind `tsa-unreachable`; `tsa-refused` where the answer is no time stamp over this.
        """
        try:
            import rfc3161_client
        except ImportError:
            message_ = "time stamps need the package rfc3161-client"
            raise TrustError("tsa-package-missing", message_, remedy="install repro-manifest[tsa]") from None
        query = (
            rfc3161_client.TimestampRequestBuilder()
            .data(message)
            .hash_algorithm(rfc3161_client.HashAlgorithm.SHA256)
            .nonce(nonce=True)
            .build()
        )
        data = self._post(query.as_bytes())
        try:
            answer = rfc3161_client.decode_timestamp_response(data)
        except ValueError:
            raise self._refused("its answer cannot be read") from None
        self._check(rfc3161_client, query, answer)
        return data

    def _post(self, query: bytes) -> bytes:
        headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
        try:
            with requests.post(
                self._url, data=query, headers=headers, timeout=_PATIENCE_SECONDS, stream=True
            ) as response:
                if response.status_code != 200:
                    raise self._refused(f"it answered with status {response.status_code}")
                return response.raw.read(_MAX_BYTES + 1, decode_content=True)[: _MAX_BYTES + 1]
        except requests.RequestException as error:
            remedy = "check the address and the network, or sign without a time stamp"
            raise NetworkError(
                "tsa-unreachable", f"no answer: {type(error).__name__}", where=self._name(), remedy=remedy
            ) from None

    def _check(self, library: Any, query: Any, answer: Any) -> None:
        if library.PKIStatus(answer.status) != library.PKIStatus.GRANTED:
            raise self._refused("it did not grant a time stamp")
        if answer.tst_info.message_imprint.message != query.message_imprint.message:
            raise self._refused("its time stamp is over something else")
        if answer.tst_info.nonce != query.nonce:
            raise self._refused("its time stamp answers another question")

    def _refused(self, why: str) -> NetworkError:
        return NetworkError("tsa-refused", why, where=self._name())

    def _name(self) -> str:
        """The address without whatever credentials stand in it."""
        from urllib.parse import urlsplit

        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
