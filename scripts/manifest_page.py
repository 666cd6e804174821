"""Write docs/manifest.md from the source: every member of `manifest.json`, with type, example and words."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from repro.manifest import Manifest

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "manifests" / "pilot.cpu" / "manifest.json"
HEAD = """# `manifest.json`, field by field

Version `https://repro-manifest/manifest/v1`. The document a run is signed by: every replay starts from it,
and every audit ends with it. Its digest, and those of all files it names, are in the signed statement of
[signing.md](signing.md). A reader of this version refuses members it does not know, and reads every
document that an earlier release wrote.

This page is written from the source by `python scripts/manifest_page.py`. Examples are those of the run in
`manifests/pilot.cpu`, cut where they are long; `–` where that run has none. The schema is
[schema/manifest.json](schema/manifest.json).

## Form

Strict JSON: strings, integers up to 2^53 - 1, true, false, null. Numbers with a fraction are strings in
C99's hexadecimal form (`0x1.8p+1`). UTF-8 in normal form C, no member twice, no byte order mark, nothing
after the value, no deeper than 32 levels, at most 8 MiB. What is unknown is null, never a guess. We write
members sorted, two spaces of indent, and a line end; the bytes are signed as they are and never written
again.

## What is left out: `repro-redaction/1`

Nothing that a person keeps secret belongs in a signed document. The rule, by its version:

1. Of the environment, only the variables of `environment` are written: those that `repro.yaml` names and
   those we set. The caller's variables neither reach the pilot nor the document.
2. Addresses are written without user, password, query and fragment. A package index is written by its name
   in `repro.yaml`, and pip's own as `default`.
3. Credentials of registries, package indexes, git and the Hub (`docker login`, `.netrc`, `pip.conf`,
   tokens) are used where they are needed and written nowhere.
4. Serial numbers, unique ids, and names of hosts and users are taken out of what tools said.
5. What the pilot prints is shown while it runs, and not kept.

What a person writes into `repro.yaml`, a requirement file or a Dockerfile is signed as it stands there.
"""


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Nouns that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from models(part)


def words(model: type[BaseModel]) -> dict[str, str]:
    """What the source says below each member."""
    (body,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for member, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(member, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(member.target, ast.Name)
            assert isinstance(text.value, ast.Constant)
            found[member.target.id] = " ".join(str(text.value.value).split())
    return found


def type_name(annotation: Any) -> str:
    """A type as a reader of JSON says it."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(f"`{json.dumps(part)}`" for part in parts)
    if origin is typing.Annotated:
        return type_name(parts[0])
    if origin is tuple:
        return f"list of {type_name(parts[0])}"
    if origin is dict:
        return f"object of {type_name(parts[1])}"
    if parts:
        return " or ".join(type_name(part) for part in parts)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    names = {"str": "string", "int": "integer", "bool": "boolean", "NoneType": "null"}
    return names.get(getattr(annotation, "__name__", ""), "string")


def collect(tree: Any, annotation: Any, found: dict[type[BaseModel], list[dict[str, Any]]]) -> None:
    """Sort every object of a document by the noun it is."""
    nouns = list(models(annotation))
    if isinstance(tree, list):
        for item in tree:
            collect(item, annotation, found)
    elif isinstance(tree, dict) and nouns:
        noun = nouns[0]
        known = {field.alias or name for name, field in noun.model_fields.items()}
        if not set(tree) <= known:
            for value in tree.values():
                collect(value, annotation, found)
            return
        found.setdefault(noun, []).append(tree)
        for name, field in noun.model_fields.items():
            collect(tree.get(field.alias or name), field.annotation, found)


def example(values: list[Any]) -> str:
    """The first value that says something, plain ones first, on one line."""
    said = [value for value in values if value not in (None, [], {})]
    for value in sorted(said, key=lambda value: isinstance(value, dict | list)):
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        return f"`{text}`" if len(text) < 60 else f"`{text[:56]} …`"
    return "–"


def order(model: type[BaseModel], seen: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """A noun and those it is made of, as they are first met."""
    if model not in seen:
        seen.append(model)
        for field in model.model_fields.values():
            for part in models(field.annotation):
                order(part, seen)
    return seen


def page(*, examples: bool = True) -> str:
    """The whole page; without examples it depends on nothing but the source."""
    found: dict[type[BaseModel], list[dict[str, Any]]] = {}
    collect(json.loads(EXAMPLE.read_text(encoding="utf-8")), Manifest, found)
    lines = [HEAD]
    for model in order(Manifest, []):
        lines += [f"## {model.__name__}", "", " ".join((model.__doc__ or "").split()), ""]
        lines += ["| member | type | example | meaning |", "|---|---|---|---|"]
        said = words(model)
        for name, field in model.model_fields.items():
            key = field.alias or name
            shown = example([tree.get(key) for tree in found.get(model, ())])
            cells = (f"`{key}`", type_name(field.annotation), shown if examples else "", said.get(name, ""))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "manifest.md").write_text(page(), encoding="utf-8")
    sys.stdout.write("docs/manifest.md\n")
