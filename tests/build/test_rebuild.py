"""A rebuild that differs says where, class by class, and what the signer calls harmless is no failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from repro.adapters.docker_engine import DockerEngine
from repro.cli.checking import Checked, Signed, check_build
from repro.cli.console import Console
from repro.image import HeldImage, ImageRecord
from repro.spec import BenignSpec
from tests.build.small_project import ROOT, Small
from tests.build.test_build import World, base_lock
from tests.parts import Parts

pytestmark = pytest.mark.engine

Both = tuple[ImageRecord, ImageRecord]

NOISY = """
USER 0:0
RUN mkdir -p /var/log /srv && date +%s%N > /var/log/build.log && date +%s%N > /srv/stamp
"""
LOG = BenignSpec(kind="log and cache files", path="var/log/*", reason="it tells when it was built")
STAMP = BenignSpec(kind="other files", path="srv/*", reason="nobody reads it")


@pytest.fixture(scope="module")
def world(
    engine: DockerEngine, base_image: HeldImage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("rebuild")
    (folder / "parts").mkdir()
    text = (ROOT / "Dockerfile.cpu").read_text()
    small = Small(Parts(folder / "parts"), folder / "project", dockerfile=text + NOISY)
    yield World(engine, small, base_lock(base_image))
    for image in engine.client.images.list():
        if any(tag.startswith("repro/small-cpu:") for tag in image.tags):
            engine.client.images.remove(image.id, force=True)


@pytest.fixture(scope="module")
def both(world: World) -> Both:
    return world.build(), world.build(fresh=True)


def checked(world: World, both: Both, *benign: BenignSpec, signed: bool) -> Checked:
    nothing: Any = None
    first, again = both
    return check_build(
        world.plan,
        lambda *, fresh: again if fresh else first,
        Signed(first, nothing, nothing, "cpu") if signed else None,
        benign,
        engine=world.engine,
        cache=world.small.parts,
        console=Console(quiet=True),
    )


def test_every_difference_is_told_by_its_class(world: World, both: Both) -> None:
    found = checked(world, both, signed=False)
    assert not found.same
    assert found.differences is not None
    told = {one.path: (one.kind, one.aspect) for one in found.differences.differences}
    assert told["var/log/build.log"] == ("log and cache files", "content")
    assert told["srv/stamp"] == ("other files", "content")
    assert {path for path in told if "opt/venv" in path or "workspace" in path} == set()
    assert not found.holds


@pytest.mark.parametrize(
    ("benign", "signed", "holds"),
    [((LOG, STAMP), True, True), ((LOG, STAMP), False, False), ((LOG,), True, False), ((), True, False)],
)
def test_only_what_a_signed_list_names_is_harmless(
    world: World,
    both: Both,
    benign: tuple[BenignSpec, ...],
    signed: bool,
    holds: bool,
) -> None:
    found = checked(world, both, *benign, signed=signed)
    assert found.differences is not None
    reasons = {one.path: one.benign for one in found.differences.differences}
    assert reasons["var/log/build.log"] == (LOG.reason if LOG in benign else None)
    assert reasons["srv/stamp"] == (STAMP.reason if STAMP in benign else None)
    assert found.holds is holds


def test_an_image_that_is_gone_is_compared_by_digest_alone(world: World, both: Both) -> None:
    other = f"sha256:{'0' * 64}"
    identity = both[0].identity.model_copy(update={"config_digest": other, "diff_ids": (other,)})
    gone = both[0].model_copy(update={"identity": identity})
    found = checked(world, (gone, both[1]), LOG, STAMP, signed=True)
    assert (found.same, found.differences, found.holds) == (False, None, False)
