"""Take serial numbers, unique ids, host and user names out of tools' text.

Unique ids become stable salted ones: the same device is recognised, and the
vendor's id cannot be had back from 64 or more random bits. Serial numbers and
names are guessable, so nothing is left of them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass

from repro.adapters.cells import printable
from repro.host import Evidence

__all__ = ["HIDDEN", "PUBLIC_SALT", "Scrubber"]

HIDDEN = "[hidden]"
"""Stands for what was taken out."""

PUBLIC_SALT = b"repro-device/1"
"""Used where no other is given: whoever holds the device can recognise it, nobody else can."""

_MAX_CHARS = 1 << 18
"""Room for the full log of sixteen devices."""

_UUID = re.compile(
    r"(?:(?:GPU|MIG|MIG-GPU|CPU)-)?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
    r"|\bGPU-[0-9A-Fa-f]{16}\b"
)
_UNIQUE = re.compile(
    r"((?:unique[_ ]id|hive_id|GPU[ _]PDI|asic_serial)\"?\s*(?:: *|> *| +)\"?)((?:0x)?[0-9A-Fa-f]{2,20})\b",
    re.IGNORECASE,
)
_SERIAL = re.compile(r"((?<!/)serial[\w ]{0,80}\"?\s{0,4}(?:: *|>) *\"?)([^\s\"<>|]+)", re.IGNORECASE)
_NAMED = re.compile(r"((?:host|user|node) ?name\"?\s*(?:: *|> *|=)\"?)([^\s\"<>|]+)", re.IGNORECASE)
_HOME = re.compile(r"(/home/|/Users/|\\Users\\)[^/\\\s\"<>|:]+")
_MEMBER = re.compile(r"^\S+(?= is (?:not )?(?:a )?member of )", re.MULTILINE)
_EMPTY = frozenset({"n/a", "[n/a]", "none", "unknown", "not", "0"})
_HIDDEN_COLUMNS = ("serial", "hostname", "platform.chassis_serial_number", "platform.gpu_fabric_guid")


@dataclass(frozen=True, kw_only=True, slots=True)
class Scrubber:
    """Takes out what tells a machine apart.

    Args:
        salt: key of the stable ids.
        names: names of this host, to be taken out wherever they stand.
        reveal: leave everything as it is; ids in facts stay salted.
    """

    salt: bytes = PUBLIC_SALT
    names: Sequence[str] = ()
    reveal: bool = False

    def stable_id(self, raw: str) -> str:
        """Return 16 hex digits of HMAC-SHA256 over a vendor's id, without its prefix and in lower case."""
        bare = re.sub(r"^(?:(?:GPU|MIG|CPU)-)+", "", raw, flags=re.IGNORECASE).casefold()
        return hmac.new(self.salt, bare.encode("utf-8"), hashlib.sha256).hexdigest()[:16]

    def text(self, text: str) -> str:
        """Return text without what tells the machine apart."""
        if self.reveal:
            return text
        text = _hide_columns(text)
        text = _UUID.sub(lambda match: f"id:{self.stable_id(match[0])}", text)
        text = _UNIQUE.sub(lambda match: f"{match[1]}id:{self.stable_id(_canonical(*match.groups()))}", text)
        text = _SERIAL.sub(lambda match: match[1] + _masked(match[2]), text)
        text = _NAMED.sub(lambda match: match[1] + _masked(match[2]), text)
        text = _MEMBER.sub(HIDDEN, _HOME.sub(lambda match: match[1] + HIDDEN, text))
        for name in self.names:
            if len(name) >= 3:
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", HIDDEN, text)
        return text

    def evidence(self, command: str, exit_code: int | None, stdout: str, stderr: str = "") -> Evidence:
        """Return raw text as a record keeps it."""
        out, err = (printable(self.text(text)) for text in (stdout, stderr))
        return Evidence(
            command=printable(self.text(command)),
            exit_code=exit_code,
            stdout=out[:_MAX_CHARS],
            stderr=err[:_MAX_CHARS],
            cut=len(out) > _MAX_CHARS or len(err) > _MAX_CHARS,
        )


def _canonical(label: str, text: str) -> str:
    """Return a 64-bit id as 16 hex digits; where only a space stands before it, kfd wrote it in decimal."""
    if label.endswith(" ") and ":" not in label and text.isdecimal():
        return f"{int(text):016x}"
    return text.lower().removeprefix("0x").rjust(16, "0")


def _masked(value: str) -> str:
    return value if value.casefold() in _EMPTY or value.startswith("id:") else HIDDEN


def _hide_columns(text: str) -> str:
    """Blank the columns of a CSV answer that hold serials and names."""
    lines = text.split("\n")
    head = [cell.strip().casefold() for cell in lines[0].split(",")]
    hidden = [place for place, name in enumerate(head) if name in _HIDDEN_COLUMNS]
    if len(head) < 2 or not hidden:
        return text
    for number, line in enumerate(lines[1:], start=1):
        found = line.split(", ")
        if len(found) == len(head):
            for place in hidden:
                found[place] = _masked(found[place])
            lines[number] = ", ".join(found)
    return "\n".join(lines)
