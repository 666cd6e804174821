"""Locks of other tools as requirements."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.adapters.pip import PipResolver
from repro.digest import hex_of
from repro.errors import LockError
from repro.lock import Platform
from repro.resolution import Resolution
from repro.resolve.foreign import is_foreign, named_parts, read_foreign
from repro.resolve.packages import lock_packages
from repro.resolve.requirements import read_inputs
from repro.spec import AcceleratorSpec
from tests.lock.lock_world import LINUX, OneBase, Quiet, World

A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
REGISTRY = 'source = { registry = "https://one.example/simple" }'


def uv(*packages: str, dependencies: str) -> str:
    """A `uv.lock` of a project with these dependencies."""
    project = (
        '[[package]]\nname = "demo"\nversion = "0.1"\nsource = { virtual = "." }\n'
        f"dependencies = {dependencies}\n"
    )
    return "version = 1\nrevision = 3\n\n" + "\n".join([project, *packages])


def package(name: str, version: str = "1.0", more: str = "", source: str = REGISTRY, wheel: str = A) -> str:
    hashed = f', hash = "{wheel}"' if wheel else ""
    return (
        f'[[package]]\nname = "{name}"\nversion = "{version}"\n{source}\n{more}\n'
        f'wheels = [{{ url = "https://one.example/{name}-{version}-py3-none-any.whl"{hashed} }}]\n'
    )


def pinned(
    text: str, path: str = "uv.lock", platform: Platform = LINUX, parts: tuple[str, ...] = ()
) -> dict[str, str | None]:
    found = read_foreign(text, path=path, platform=platform, parts=parts)
    return {pin.name: pin.version for pin in found.pins}


def test_names() -> None:
    assert [is_foreign(name) for name in ("uv.lock", "locks/pylock.toml", "pylock.cpu.toml")] == [True] * 3
    assert not any(map(is_foreign, ("requirements.txt", "my-uv.lock", "pylock.a.b.toml", "lock.toml")))


def test_uv_walks_from_the_project_and_takes_what_the_platform_needs() -> None:
    text = uv(
        package("alpha", more='dependencies = [{ name = "beta", extra = ["fast"] }]'),
        package(
            "beta",
            more='[package.optional-dependencies]\nfast = [{ name = "gamma" }]\nslow = [{ name = "x" }]\n',
        ),
        package("gamma", more='dependencies = [{ name = "alpha" }]'),
        package("x"),
        package("windows-only"),
        package("old-only"),
        package("tester"),
        dependencies=(
            '[{ name = "alpha" }, { name = "windows-only", marker = "sys_platform == \'win32\'" }, '
            '{ name = "old-only", marker = "python_full_version < \'3.12\'" }]\n'
            '[package.dev-dependencies]\ndev = [{ name = "tester" }]'
        ),
    )
    # TOML wants a table's own keys before its subtables.
    text = text.replace(f"{'[package.optional-dependencies]'}\nfast", "optional-dependencies.fast").replace(
        "\nslow = ", "\noptional-dependencies.slow = "
    )
    assert pinned(text) == {"alpha": "1.0", "beta": "1.0", "gamma": "1.0", "old-only": "1.0"}
    newer = LINUX.model_copy(update={"python": "3.12"})
    assert pinned(text, platform=newer) == {"alpha": "1.0", "beta": "1.0", "gamma": "1.0"}


def test_uv_forks_apply_by_their_markers() -> None:
    text = uv(
        package("torch", "2.0", "resolution-markers = [\"sys_platform == 'darwin'\"]"),
        package("torch", "2.0+cpu", "resolution-markers = [\"sys_platform != 'darwin'\"]"),
        package("numpy", "1.0"),
        package("numpy", "2.0"),
        dependencies='[{ name = "torch" }, { name = "numpy", version = "2.0" }]',
    )
    assert pinned(text) == {"torch": "2.0+cpu", "numpy": "2.0"}


PARTS = """
[package.optional-dependencies]
cpu = [{ name = "torch", version = "2.0+cpu", marker = "extra == 'extra-4-demo-cpu'" }]
gpu = [
    { name = "torch", version = "2.0+cu130", marker = "extra == 'extra-4-demo-gpu'" },
    { name = "gpu-only", marker = "extra == 'extra-4-demo-gpu' and extra != 'extra-4-demo-cpu'" },
]
[package.dev-dependencies]
train = [{ name = "numpy" }]
"""


def test_extras_and_groups_of_a_uv_lock_are_taken_by_name() -> None:
    text = uv(
        package("base"),
        package("numpy"),
        package("gpu-only"),
        package("torch", "2.0+cpu"),
        package("torch", "2.0+cu130"),
        dependencies='[{ name = "base" }]\n' + PARTS,
    )
    assert pinned(text) == {"base": "1.0"}
    assert pinned(text, parts=("cpu",)) == {"base": "1.0", "torch": "2.0+cpu"}
    gpu = {"base": "1.0", "torch": "2.0+cu130", "gpu-only": "1.0", "numpy": "1.0"}
    assert pinned(text, parts=("gpu", "train")) == gpu
    with pytest.raises(LockError) as missing:
        pinned(text, parts=("rocm",))
    assert missing.value.kind == "foreign-part-missing"
    assert "cpu, gpu, train" in missing.value.message


def test_extras_and_groups_of_a_pylock_are_taken_by_name() -> None:
    def one(name: str, marker: str = "") -> str:
        url = f"https://one.example/{name}-1.0-py3-none-any.whl"
        wheel = f'{{ url = "{url}", hashes = {{ sha256 = "{hex_of(A)}" }} }}'
        return f'[[packages]]\nname = "{name}"\nversion = "1.0"\n{marker}\nwheels = [{wheel}]\n'

    text = (
        'lock-version = "1.0"\ncreated-by = "us"\nextras = ["gpu"]\ndependency-groups = ["train", "main"]\n'
        'default-groups = ["main"]\n\n'
        + one("base")
        + one("torch", "marker = \"'gpu' in extras\"")
        + one("numpy", "marker = \"'train' in dependency_groups\"")
        + one("usual", "marker = \"'main' in dependency_groups\"")
    )
    assert set(pinned(text, "pylock.toml")) == {"base", "usual"}
    assert set(pinned(text, "pylock.toml", parts=("gpu", "train"))) == {"base", "usual", "torch", "numpy"}


def test_parts_stand_in_brackets_behind_the_path(tmp_path: Path) -> None:
    assert named_parts("locks/uv.lock[GPU, train]") == ("locks/uv.lock", ("gpu", "train"))
    assert named_parts("r.txt[gpu]") == ("r.txt[gpu]", ())
    text = uv(package("base"), package("numpy"), dependencies='[{ name = "base" }]\n' + PARTS)
    (tmp_path / "uv.lock").write_text(text)
    (tmp_path / "r.in").write_text("-r uv.lock[train]\n")
    inputs, _, _ = read_inputs(tmp_path, ["uv.lock[train]"], [], [], LINUX)
    assert (inputs.requirements, inputs.closed) == (("uv.lock",), ("base", "numpy"))
    nested, _, _ = read_inputs(tmp_path, ["r.in"], [], [], LINUX)
    assert nested.documents["r.in"] == "-r uv.lock\n"
    with pytest.raises(LockError) as twice:
        read_inputs(tmp_path, ["uv.lock[train]", "uv.lock[gpu]"], [], [], LINUX)
    assert twice.value.kind == "foreign-parts-twice"
    assert nested.documents["uv.lock"] == inputs.documents["uv.lock"] == "base==1.0\nnumpy==1.0\n"


def test_packages_of_another_index_are_bound_to_it(tmp_path: Path) -> None:
    other = 'source = { registry = "https://two.example/whl/cu130" }'
    text = uv(
        package("numpy"),
        package("idna"),
        package("torch", source=other),
        dependencies='[{ name = "torch" }, { name = "numpy" }, { name = "idna" }]',
    )
    (index,) = read_foreign(text, path="uv.lock", platform=LINUX).indexes(tmp_path)
    assert (index.name, index.url, index.packages) == (
        "two.example-whl-cu130",
        "https://two.example/whl/cu130",
        ("torch",),
    )


def test_a_pylock_is_selected_from_for_the_platform() -> None:
    wheels = ", ".join(
        f'{{ url = "https://one.example/torch-2.0-cp311-cp311-{tag}.whl", '
        f'hashes = {{ sha256 = "{hex_of(digest)}" }} }}'
        for tag, digest in (("manylinux_2_28_x86_64", A), ("win_amd64", B))
    )
    text = (
        'lock-version = "1.0"\ncreated-by = "test"\n\n'
        f'[[packages]]\nname = "torch"\nversion = "2.0"\nwheels = [{wheels}]\n\n'
        '[[packages]]\nname = "other"\nversion = "1.0"\nmarker = "platform_machine == \'aarch64\'"\n'
        f'wheels = [{{ path = "other-1.0-py3-none-any.whl", hashes = {{ sha256 = "{hex_of(A)}" }} }}]\n'
    )
    lock = read_foreign(text, path="pylock.toml", platform=LINUX)
    assert [(pin.name, pin.version, pin.hashes) for pin in lock.pins] == [("torch", "2.0", (A, B))]
    with pytest.raises(LockError) as caught:
        read_foreign(text, path="pylock.toml", platform=LINUX.model_copy(update={"architecture": "aarch64"}))
    assert caught.value.kind == "foreign-platform"


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("uv.lock", "version = ", "foreign-malformed"),
        ("uv.lock", "version = 1\n", "foreign-malformed"),
        ("uv.lock", uv(dependencies='[{ name = "absent" }]'), "foreign-malformed"),
        (
            "uv.lock",
            uv(package("x"), dependencies='[{ name = "x", marker = "nonsense" }]'),
            "foreign-malformed",
        ),
        (
            "uv.lock",
            uv(package("x", source='source = { git = "https://host/x" }'), dependencies='[{ name = "x" }]'),
            "foreign-without-wheel",
        ),
        ("pylock.toml", 'lock-version = "2.0"\n', "foreign-malformed"),
        (
            "pylock.toml",
            'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "x"\ndirectory = { path = "." }\n',
            "foreign-without-wheel",
        ),
    ],
)
def test_locks_that_cannot_be_taken(path: str, text: str, kind: str) -> None:
    with pytest.raises(LockError) as caught:
        read_foreign(text, path=path, platform=LINUX)
    assert caught.value.kind == kind
    assert caught.value.where == path


def test_a_lock_without_hashes_leaves_them_to_be_computed(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(uv(package("x", wheel=""), dependencies='[{ name = "x" }]'))
    inputs, _, _ = read_inputs(tmp_path, ["uv.lock"], [], [], LINUX)
    assert inputs.allowed == {}
    assert inputs.closed == ("x",)


class TestResolved:
    @pytest.fixture
    def lock(self, resolver: PipResolver, tmp_path: Path) -> Callable[[str], Resolution]:
        """Lock a project whose requirements are a `uv.lock`."""

        def run(text: str) -> Resolution:
            (tmp_path / "uv.lock").write_text(text)
            spec = AcceleratorSpec.parse({"dockerfile": "D", "base": "b", "requirements": ["uv.lock"]})
            made = lock_packages(
                "cpu",
                spec,
                OneBase().find("b", architecture="amd64"),
                root=tmp_path,
                resolver=resolver,
                previous=(),
                upgrade=None,
                progress=Quiet(),
            )
            return Resolution(
                compiled="", pip=made.packages.pip, files=made.packages.files, tools=made.packages.resolver
            )

        return run

    def test_versions_and_hashes_are_those_of_the_lock(
        self, world: World, lock: Callable[[str], Resolution]
    ) -> None:

        index = world.index("default")
        old = index.add("pilot", "1.0", requires=["engine"])
        engine = index.add("engine", "1.0")
        index.add("pilot", "2.0")
        text = uv(
            package(
                "pilot",
                more='dependencies = [{ name = "engine" }]',
                wheel=f"sha256:{hashlib.sha256(old.data).hexdigest()}",
            ),
            package("engine", wheel=f"sha256:{hashlib.sha256(engine.data).hexdigest()}"),
            dependencies='[{ name = "pilot" }]',
        )
        found = lock(text)
        assert {file.name: file.version for file in found.files} == {"pilot": "1.0", "engine": "1.0"}
        with pytest.raises(LockError) as caught:
            lock(text.replace(hashlib.sha256(old.data).hexdigest(), "0" * 64))
        assert caught.value.kind == "hash-not-allowed"

    def test_a_lock_that_lacks_a_package_is_refused(
        self, world: World, lock: Callable[[str], Resolution]
    ) -> None:
        world.index("default").add("pilot", "1.0", requires=["engine"])
        world.index("default").add("engine", "1.0")
        with pytest.raises(LockError, match="engine") as caught:
            lock(uv(package("pilot", wheel=""), dependencies='[{ name = "pilot" }]'))
        assert caught.value.kind == "lock-incomplete"
