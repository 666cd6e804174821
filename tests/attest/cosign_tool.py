"""Find cosign, or fetch Debian's package of it from the mirror this machine already uses.

`trixie` has version 2.5, `sid` a version from 3.1 on. The package is unpacked
below `.cache/cosign`, never installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror() -> str | None:
    """The address of the Debian archive that apt is set up with."""
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(path.read_text(errors="replace") for path in lists if path.is_file())
    found = re.search(r"^(?:URIs:|deb\s+(?:\[[^]]*\]\s+)?)\s*(\S+/debian/?)(?=\s|$)", text, re.MULTILINE)
    return found[1] if found else None


def find_cosign(suite: str) -> tuple[Path | None, str]:
    """Return the cosign of a Debian suite, or None and the reason."""
    place = ROOT / ".cache" / "cosign" / suite
    program = place / "usr/bin/cosign"
    if program.exists():
        return program, ""
    if not all(map(shutil.which, ("apt-get", "dpkg"))) or not Path(KEYRING).exists():
        return None, "no cosign, and no apt with Debian's keys to fetch it with"
    address = mirror()
    if address is None:
        return None, "no cosign, and apt is not set up with a Debian archive"
    try:
        fetch(address, suite, place)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(place, ignore_errors=True)
        return None, f"cosign could not be fetched from {suite}: {type(error).__name__}"
    return program, ""


def fetch(address: str, suite: str, place: Path) -> None:
    """Download and unpack, with lists of our own so that the machine's stay as they are."""
    work = place / "apt"
    for folder in ("lists/partial", "archives/partial", "etc"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    source = work / "etc" / "sources.list"
    source.write_text(f"deb [signed-by={KEYRING}] {address} {suite} main\n")
    (work / "status").touch()
    settings = {
        "Dir::Etc::sourcelist": source,
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::main": "-",
        "Dir::State": work,
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work,
        "Dir::Cache::archives": work / "archives",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def run(*command: str) -> None:
        subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=300)

    run("apt-get", *options, "-qq", "update")
    run("apt-get", *options, "-qq", "download", "cosign")
    run("dpkg", "-x", *(str(path) for path in work.glob("cosign_*.deb")), str(place))
    shutil.rmtree(work)
