"""Curves over steps as HTML: a stretched SVG for the lines, plain text for everything that is read.

The drawing fits any width, because only lines are stretched; the labels around it keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.report.markup import Html, join, raw, tag
from repro.report.scale import FULL, Scale, linear_scale, log_scale, step_scale
from repro.report.series import Bucket, Curve
from repro.report.words import clipped

__all__ = ["Line", "Marker", "figure"]

_DOTS = 60
"""So many points or fewer are drawn as dots too."""


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with its name and its look: `signed`, `allowed`, `other-0` to `other-4`."""

    label: str
    look: str
    curve: Curve


@dataclass(frozen=True, slots=True)
class Marker:
    """A step to point at."""

    step: int
    label: str


def _drawn(lines: Sequence[Line]) -> list[tuple[Line, list[Bucket]]]:
    return [(line, buckets) for line in lines if (buckets := line.curve.buckets)]


def _points(buckets: Sequence[Bucket], x: Scale, y: Scale, *, log: bool) -> list[tuple[float, float]]:
    """Both ends of every bucket; of a difference only the larger, for that is what counts."""
    points = []
    for bucket in buckets:
        if bucket.low > bucket.high:
            continue
        at = x.place((bucket.first + bucket.last) / 2)
        if bucket.low < bucket.high and not log:
            points.append((at, y.place(bucket.low)))
        points.append((at, y.place(bucket.high)))
    return points


def _path(points: Sequence[tuple[float, float]], class_: str) -> Html | None:
    if not points:
        return None
    d = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    return tag("path", d=raw(d), class_=class_)


def _dots(points: Sequence[tuple[float, float]], class_: str) -> Html | None:
    """Lines of no length with round ends, which stay round however the drawing is stretched."""
    d = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in points)
    return tag("path", d=raw(d), class_=class_) if points else None


def _curve(line: Line, buckets: Sequence[Bucket], x: Scale, y: Scale, *, log: bool) -> Html:
    points = _points(buckets, x, y, log=log)
    bad = [(x.place(bucket.first), 20.0) for bucket in buckets if bucket.bad]
    dots = _dots(points, f"dots {line.look}") if len(points) <= _DOTS else None
    return join(_path(points, f"line {line.look}"), dots, _dots(bad, "dots bad"))


def _said(bucket: Bucket, *, log: bool) -> str:
    if bucket.bad:
        return "not finite"
    if bucket.low == bucket.high or log:
        return f"{bucket.high:.9g}"
    return f"{bucket.low:.6g} to {bucket.high:.6g}"


def _readings(drawn: Sequence[tuple[Line, list[Bucket]]], x: Scale, *, log: bool) -> Html:
    """Invisible bars that say the values of a step where the pointer rests."""
    told: dict[tuple[int, int], list[str]] = {}
    for line, buckets in drawn:
        for bucket in buckets:
            told.setdefault((bucket.first, bucket.last), []).append(f"{line.label} {_said(bucket, log=log)}")
    width = max(FULL / max(len(told), 1), 1.0)
    return join(
        *(
            tag(
                "rect",
                tag("title", f"step {first if first == last else f'{first} to {last}'}: {', '.join(texts)}"),
                x=f"{x.place((first + last) / 2) - width / 2:.1f}",
                y="0",
                width=f"{width:.1f}",
                height="1000",
                class_="reading",
            )
            for (first, last), texts in sorted(told.items())
        )
    )


def _labels(x: Scale, y: Scale, marker: Marker | None) -> Html:
    ups = (tag("span", text, class_="y", style=f"top:{at / 10:.2f}%") for at, text in y.ticks)
    alongs = (tag("span", text, class_="x", style=f"left:{at / 10:.2f}%") for at, text in x.ticks)
    flag = None
    if marker is not None:
        at = x.place(marker.step)
        side = "left" if at <= FULL / 2 else "right"
        place = f"left:{at / 10:.2f}%" if side == "left" else f"right:{100 - at / 10:.2f}%"
        flag = tag("span", marker.label, class_=f"flag {side}", style=place)
    return join(*ups, *alongs, flag)


def _grid(y: Scale, x: Scale, marker: Marker | None) -> Html:
    lines = "".join(f"M0 {at:.1f}H1000" for at, _ in y.ticks)
    flag = f"M{x.place(marker.step):.1f} 0V1000" if marker else None
    return join(
        tag("path", d=raw(lines), class_="grid"), tag("path", d=raw(flag), class_="marker") if flag else None
    )


def figure(
    title: str,
    lines: Sequence[Line],
    *,
    log: bool = False,
    marker: Marker | None = None,
    note: str | None = None,
) -> Html:
    """Draw curves over one axis of steps.

    Args:
        title: what is drawn.
        lines: the curves, the one to be seen below the others first; empty ones are left out.
        log: for differences: by powers of ten, zero apart, of several steps the largest value only.
        marker: a step to point at; left out where it lies outside.
        note: a sentence below.

    Returns:
        A `figure`, or nothing where no curve has a point.
    """
    drawn = _drawn(lines)
    if not drawn:
        return Html()
    every = [bucket for _, buckets in drawn for bucket in buckets]
    first, last = min(bucket.first for bucket in every), max(bucket.last for bucket in every)
    x = step_scale(first, last)
    ends = [end for bucket in every for end in ((bucket.high,) if log else (bucket.low, bucket.high))]
    y = log_scale(ends) if log else linear_scale(ends)
    if marker is not None and not first <= marker.step <= last:
        marker = None
    drawing = tag(
        "svg",
        _grid(y, x, marker),
        *(_curve(line, buckets, x, y, log=log) for line, buckets in drawn),
        _readings(drawn, x, log=log),
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}, steps {first} to {last}: {', '.join(line.label for line, _ in drawn)}",
    )
    legend = [tag("span", tag("i", class_=f"key {line.look}"), clipped(line.label, 40)) for line, _ in drawn]
    if any(bucket.bad for bucket in every):
        legend.append(tag("span", tag("i", class_="key bad"), "not finite"))
    return tag(
        "figure",
        tag("figcaption", tag("b", title), *legend),
        tag("div", drawing, _labels(x, y, marker), class_="plot flagged" if marker else "plot"),
        tag("p", note, class_="note") if note else None,
    )
