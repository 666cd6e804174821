"""Edit `trust.yaml` as its owner would: keys and rules change, comments stay."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Quoted

from repro.adapters.files import write_atomic
from repro.attest.publickey import PublicKey, load_public_key
from repro.errors import TrustError
from repro.statement import REPLAY_TYPE, RUN_TYPE
from repro.trust import TRUST_SCHEMA, TrustPolicy, parse_policy

__all__ = ["replace_policy", "trust_key"]

PREDICATES = {"run": RUN_TYPE, "replay": REPLAY_TYPE}

_HEADER = "Whom this reader believes. Yours alone: never take it from a run folder.\nSee docs/trust.md."


def _yaml() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _fresh() -> CommentedMap:
    tree = CommentedMap()
    tree["schema"] = Quoted(TRUST_SCHEMA)
    tree["version"] = 0
    tree["keys"] = CommentedSeq()
    tree["rules"] = CommentedSeq()
    tree.yaml_set_start_comment(_HEADER)
    return tree


def _open(path: Path) -> CommentedMap:
    """Read a policy for editing, after the strict reader has accepted it."""
    if not path.exists():
        return _fresh()
    data = path.read_bytes()
    parse_policy(data, where=str(path))
    tree = _yaml().load(data)
    assert isinstance(tree, CommentedMap)
    return tree


def _flow(members: dict[str, Any]) -> CommentedMap:
    entry = CommentedMap(members)
    entry.fa.set_flow_style()
    return entry


def _rule(tree: CommentedMap, predicate: str, principal: str) -> bool:
    """Let a principal sign one kind of statement; say whether that is new."""
    for rule in tree["rules"]:
        if rule["predicateType"] == predicate:
            if principal in rule["principals"]:
                return False
            rule["principals"].append(Quoted(principal))
            return True
    principals = CommentedSeq([Quoted(principal)])
    principals.fa.set_flow_style()
    tree["rules"].append(
        _flow({"predicateType": Quoted(predicate), "threshold": 1, "principals": principals})
    )
    return True


def trust_key(trust: Path, key: Path, *, principal: str, statement: str) -> PublicKey:
    """Add a public key to a policy, and let its principal sign one kind of statement.

    The file is made where it is missing, and left alone where it says all that already.
    A key that does not lie below the policy's folder is copied to `keys/` there.

    Args:
        statement: `run` or `replay`.

    Raises:
        TrustError: `E_KEY` for a file that holds no public key that may sign, `key-known` where the key
            belongs to another principal already, or another file has the name it would get.
        SpecError: the policy has flaws.
    """
    opened = load_public_key(key.read_bytes(), where=str(key))
    tree = _open(trust)
    known = [entry for entry in tree.get("keys") or () if entry["fingerprint"] == opened.fingerprint]
    if known and known[0]["principal"] != principal:
        raise TrustError(
            "key-known",
            f"the key is trusted already, as {known[0]['principal']}",
            where=str(trust),
            remedy="one key is one principal: remove the other entry by hand if it is wrong",
        )
    if not known:
        place = _beside(trust, key, f"{principal}-{opened.fingerprint[7:15]}.pub")
        members = {
            "file": Quoted(place),
            "fingerprint": Quoted(opened.fingerprint),
            "principal": Quoted(principal),
        }
        tree.setdefault("keys", CommentedSeq()).append(_flow(members))
    if not _rule(tree, PREDICATES[statement], principal) and known:
        return opened
    tree["version"] += 1
    stream = io.BytesIO()
    _yaml().dump(tree, stream)
    parse_policy(stream.getvalue(), where=str(trust))
    write_atomic(trust, stream.getvalue())
    return opened


def _beside(trust: Path, key: Path, name: str) -> str:
    """Path of the key as the policy names it, after a copy where it lies elsewhere."""
    folder = trust.absolute().parent
    relative = os.path.relpath(key.absolute(), folder)
    if not relative.startswith(".."):
        return Path(relative).as_posix()
    data, target = key.read_bytes(), folder / "keys" / name
    if target.exists() and target.read_bytes() != data:
        raise TrustError("key-known", "another key lies where this one would be copied", where=str(target))
    write_atomic(target, data)
    return f"keys/{name}"


def replace_policy(trust: Path, source: Path, policy: TrustPolicy, data: bytes) -> None:
    """Put a policy that was checked, and the files it names, in the place of another.

    Files come first and the policy last, so that what lies there is whole at every moment.

    Raises:
        TrustError: `key-known` where another file has a name that the new policy uses.
    """
    names = [key.file for key in policy.keys]
    names += [name for ca in policy.cas for name in (*ca.roots, *ca.intermediates)]
    names += [name for tsa in policy.tsas for name in (tsa.certificate, tsa.root)]
    found = {name: (source.parent / name).read_bytes() for name in names}
    for name, content in found.items():
        target = trust.parent / name
        if target.exists() and target.read_bytes() != content:
            raise TrustError(
                "key-known", "another file lies where one of the policy belongs", where=str(target)
            )
    for name, content in found.items():
        write_atomic(trust.parent / name, content)
    write_atomic(trust, data)
