"""Text of tools as values: what a cell says, or None where it says that it does not know.

Everything here is pure. A value is never made up: it is the text, or a number
the text holds, and text that was cut short gives None instead of its stump.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

__all__ = [
    "complete_lines",
    "decode",
    "hexadecimal",
    "integer",
    "is_error",
    "known",
    "megabytes",
    "milliwatts",
    "pci_address",
    "printable",
    "switch",
    "version",
]

_MAX_CHARS = 256
_MAX_INTEGER = (1 << 53) - 1
_FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})

_UNKNOWN = frozenset(
    {
        "",
        "-",
        "--",
        "could not collect",
        "cpu-xx",
        "err!",
        "error",
        "function not found",
        "gpu is lost",
        "gpu requires reset",
        "gpu-xx",
        "insufficient permissions",
        "n/a",
        "no cuda",
        "no data",
        "no permission",
        "no relevant packages",
        "none",
        "not applicable",
        "not available",
        "not found",
        "not supported",
        "null",
        "unknown",
        "unknown error",
        "xx",
    }
)
_UNKNOWN_STARTS = (
    "deprecated",
    "err! ",
    "failed to ",
    "n/a ",
    "not supported on ",
    "requested functionality has been deprecated",
    "unable to ",
)
_REMARK = re.compile(r"\s*\[(?:deprecated|not supported)\b[^\]]*\]\s*\Z", re.IGNORECASE)
_ENCLOSED = re.compile(r"\[.*\]|<.*>|\(null\)", re.DOTALL)
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,12}){1,5}")
_INTEGER = re.compile(r"([0-9]{1,16})(?:\.0+)?(?: ?(?:[A-Za-z%/]{1,6}))?")
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,13})")
_SIZE = re.compile(r"([0-9]{1,15})(?:\.0+)? ?([KMG]?i?B)?", re.IGNORECASE)
_POWER = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,3})[0-9]*)?(?: ?W)?")
_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")
_BYTES = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ERRORS = frozenset({"err!", "unknown error", "gpu is lost", "gpu requires reset"})
_ON = frozenset({"enabled", "on", "yes", "true", "active"})
_OFF = frozenset({"disabled", "off", "no", "false", "not active"})


def decode(data: bytes) -> str:
    """Return the text of a tool's bytes, whatever the locale: UTF-8, or UTF-16 where its mark says so."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def complete_lines(text: str) -> list[str]:
    """Return the lines that have their end. What stands after the last one may be a stump."""
    return text.split("\n")[:-1]


def known(text: str | None) -> str | None:
    """Return what a cell says, stripped, or None where it stands for "unknown" in any tool's way."""
    if text is None:
        return None
    value = _REMARK.sub("", text).strip()
    folded = value.casefold()
    if folded in _UNKNOWN or folded.startswith(_UNKNOWN_STARTS) or _ENCLOSED.fullmatch(value):
        return None
    if len(value) > _MAX_CHARS or any(unicodedata.category(char) in _FORBIDDEN for char in value):
        return None
    return unicodedata.normalize("NFC", value)


def printable(text: str) -> str:
    """Return text as strict JSON takes it: NFC, and no character but tab and newline that cannot be seen."""
    shown = "".join(
        char if char in "\t\n" or unicodedata.category(char) not in _FORBIDDEN else "\ufffd" for char in text
    )
    return unicodedata.normalize("NFC", shown)


def _matched(pattern: re.Pattern[str], text: str | None) -> re.Match[str] | None:
    value = known(text)
    return None if value is None else pattern.fullmatch(value)


def _bounded(number: int) -> int | None:
    return number if number <= _MAX_INTEGER else None


def version(text: str | None) -> str | None:
    """Return a dotted version, such as `535.183.06`, or None."""
    match = _matched(_VERSION, text)
    return match[0] if match else None


def integer(text: str | None) -> int | None:
    """Return a whole number, written with or without a unit, or None."""
    match = _matched(_INTEGER, text)
    return _bounded(int(match[1])) if match else None


def hexadecimal(text: str | None) -> int | None:
    """Return a number written in hex, with or without `0x`, or None."""
    match = _matched(_HEX, text)
    return _bounded(int(match[1], 16)) if match else None


def megabytes(text: str | None, unit: str = "MiB") -> int | None:
    """Return a size in MiB, rounded down; `unit` is that of a bare number. Tools' MB are MiB."""
    match = _matched(_SIZE, text)
    if match is None:
        return None
    size = int(match[1]) * _BYTES[(match[2] or unit)[0].upper()]
    return _bounded(size >> 20)


def milliwatts(text: str | None) -> int | None:
    """Return a power, written in watts, in milliwatts, or None."""
    match = _matched(_POWER, text)
    return int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0")) if match else None


def switch(text: str | None) -> bool | None:
    """Return whether something is on, or None where it is neither on nor off."""
    folded = (known(text) or "").casefold()
    return True if folded in _ON else False if folded in _OFF else None


def pci_address(text: str | None) -> str | None:
    """Return `domain:bus:device.function` in lower case, with four digits of domain where they suffice."""
    match = _matched(_PCI, text)
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def is_error(text: str | None) -> bool:
    """Say whether a cell holds a device's cry for help instead of a value."""
    return (text or "").strip(" []").casefold() in _ERRORS
