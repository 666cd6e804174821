"""HTML put together from Python, so that text can only ever be text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from repro.report.words import clipped, printable

__all__ = ["Html", "join", "raw", "table", "tag"]

_VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """Text that is markup already; only this module makes it."""

    __slots__ = ()


def raw(trusted: str) -> Html:
    """Take a text of this package as markup; never one that came from a run."""
    return Html(trusted)


def _text(value: str) -> str:
    if isinstance(value, Html):
        return value
    return escape(printable(clipped(value, 2000)), quote=True)


def tag(name: str, /, *children: str | None, **attributes: str | None) -> Html:
    """One element. Children and attributes that are no `Html` are escaped; None is left out.

    An attribute's trailing underscore is dropped (`class_`), other underscores become dashes; the empty text
    stands for an attribute without a value.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + (f'="{_text(value)}"' if value else "")
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: str | None) -> Html:
    """Elements and texts one after the other."""
    return Html("".join(_text(child) for child in children if child is not None))


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, class_: str = "") -> Html:
    """A table that a narrow screen scrolls sideways; the first column names the row."""
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head))) if head else None
    body = (
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in rest)) for first, *rest in rows
    )
    return tag("div", tag("table", top, tag("tbody", *body), class_=class_ or None), class_="scroll")
