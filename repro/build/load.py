"""Image → engine: loaded from its own config and layers, and proof that the engine holds just that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from repro.build.oci import Layer, docker_archive
from repro.digest import digest_bytes, hex_of
from repro.errors import BuildError, ReproError
from repro.ports import Engine, Progress

__all__ = ["image_name", "load_image"]


def image_name(project: str, accelerator: str) -> str:
    """Return what people find our image by in their engine; it is never run by that name."""
    return f"repro/{project}-{accelerator}"


def load_image(
    engine: Engine, config: bytes, layers: Sequence[Layer], *, name: str, progress: Progress
) -> None:
    """Give the engine an image, unless it holds it, and make sure that it holds just that.

    Args:
        name: to tag it with, without a tag.

    Raises:
        BuildError: `load-failed`, or `load-differs` where the engine holds something else then.
        EngineError: the engine went away.
    """
    digest = digest_bytes(config)
    diff_ids = [layer.diff_id for layer in layers]
    if engine.find(digest, diff_ids=diff_ids) is not None:
        return
    progress.start("loading", sum(layer.size for layer in layers if layer.chunks is not None))
    tag = f"{name}:{hex_of(digest)[:12]}"

    def counted() -> Iterator[bytes]:
        for chunk in docker_archive(config, layers, tag=tag):
            yield chunk
            progress.advance(len(chunk))

    try:
        loaded = engine.load(counted())
        if engine.find(digest, diff_ids=diff_ids) is None:
            raise BuildError(
                "load-differs",
                f"the engine answered {loaded} where the image is {digest}",
                remedy="report this with the engine's name and version; the image must not be used",
            )
    except BaseException:
        with suppress(ReproError):
            engine.remove(tag)
        raise
