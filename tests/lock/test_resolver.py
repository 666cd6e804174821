"""The resolver against real indexes on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.adapters.pip import PipResolver, shim
from repro.digest import digest_bytes
from repro.errors import LockError, NetworkError, ReproError
from repro.lock import IndexLock, PackageFile, PackageLock, Platform
from repro.resolution import Resolution
from repro.resolve.render import requirements_text
from repro.resolve.requirements import read_inputs
from repro.spec import IndexSpec
from tests.lock.lock_world import LINUX, Quiet, World, wheel

Resolve = Callable[..., Resolution]


@pytest.fixture
def resolve(resolver: PipResolver, tmp_path: Path) -> Resolve:
    """Resolve the text of a requirements file."""

    def run(
        text: str,
        *,
        files: dict[str, str] | None = None,
        constraints: tuple[str, ...] = (),
        indexes: tuple[IndexSpec, ...] = (),
        platform: Platform = LINUX,
        previous: tuple[PackageFile, ...] = (),
        upgrade: tuple[str, ...] | None = None,
        progress: Quiet | None = None,
    ) -> Resolution:
        root = tmp_path / "project"
        root.mkdir(exist_ok=True)
        for path, content in {"requirements.in": text, **(files or {})}.items():
            (root / path).write_text(content)
        inputs, _, _ = read_inputs(root, ["requirements.in"], constraints, indexes, platform)
        return resolver.resolve(
            inputs, platform=platform, previous=previous, upgrade=upgrade, progress=progress or Quiet()
        )

    return run


def locked(resolution: Resolution, *indexes: IndexLock) -> PackageLock:
    """Return a package lock with the files of a resolution."""
    any_digest = digest_bytes(b"")
    return PackageLock(
        platform=LINUX,
        requirements=any_digest,
        pylock=any_digest,
        compiled=any_digest,
        inputs=(),
        indexes=indexes,
        resolver=resolution.tools,
        pip=resolution.pip,
        files=resolution.files,
    )


def pinned(resolution: Resolution) -> dict[str, str]:
    return {file.name: file.version for file in resolution.files}


def refusal(kind: type[ReproError], resolve: Resolve, *arguments: object, **options: object) -> ReproError:
    with pytest.raises(kind) as caught:
        resolve(*arguments, **options)
    return caught.value


def test_one_exact_wheel_per_package(world: World, resolve: Resolve, resolver: PipResolver) -> None:
    index = world.index("default")
    index.add("pilot", "1.0", requires=["engine>=2", 'windows-only; sys_platform == "win32"'])
    newest = index.add("engine", "2.1")
    index.add("engine", "2.0")

    found = resolve("pilot\n")

    assert pinned(found) == {"engine": "2.1", "pilot": "1.0"}
    engine = found.files[0]
    assert engine.digest == f"sha256:{hashlib.sha256(newest.data).hexdigest()}"
    assert (engine.size, engine.index, engine.hash_source) == (len(newest.data), "default", "published")
    assert (engine.requested, found.files[1].requested) == (False, True)
    held = resolver.cache.path(engine.digest)
    assert held is not None
    assert held.read_bytes() == newest.data
    assert found.pip.filename.startswith("pip-")
    assert resolver.cache.path(found.pip.digest)


def test_pip_installs_the_lock(world: World, resolve: Resolve, resolver: PipResolver, tmp_path: Path) -> None:
    index = world.index("default")
    index.add("pilot", "1.0+cpu", requires=["engine"])
    index.add("engine", "2.0", hashed="none")
    found = resolve("pilot==1.0\n")
    text = requirements_text("cpu", LINUX, found.files, found.compiled)
    (tmp_path / "lock.txt").write_text(text)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for file in found.files:
        held = resolver.cache.path(file.digest)
        assert held is not None
        (wheels / file.filename).write_bytes(held.read_bytes())

    installed = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--no-index", "--find-links", str(wheels)),
            *("--require-hashes", "--no-deps", "--target", str(tmp_path / "site"), "-r"),
            str(tmp_path / "lock.txt"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert installed.returncode == 0, installed.stderr
    assert {path.name for path in (tmp_path / "site").glob("*.py")} == {"pilot.py", "engine.py"}
    assert text.count("--hash") == 2
    assert "pilot==1.0+cpu" in text


def test_hashes_are_computed_where_the_index_has_none(world: World, resolve: Resolve) -> None:
    index = world.index("default")
    offered = index.add("pilot", "1.0", hashed="none", metadata=True)

    found = resolve("pilot\n")

    digest = f"sha256:{hashlib.sha256(offered.data).hexdigest()}"
    assert (found.files[0].digest, found.files[0].hash_source) == (digest, "computed")
    assert f"--hash={digest}" in found.compiled
    assert found.compiled.count("--hash") == 1


def test_an_index_that_contradicts_its_own_bytes_is_refused(world: World, resolve: Resolve) -> None:
    world.index("default").add("pilot", "1.0", hashed="wrong")

    error = refusal(LockError, resolve, "pilot\n")

    assert error.kind == "hash-contradiction"
    assert "0" * 64 in str(error)


def test_hashes_of_the_requirements_are_held_to(world: World, resolve: Resolve) -> None:
    offered = world.index("default").add("pilot", "1.0")
    right = hashlib.sha256(offered.data).hexdigest()

    assert pinned(resolve(f"pilot==1.0 --hash=sha256:{right}\n")) == {"pilot": "1.0"}
    error = refusal(LockError, resolve, f"pilot==1.0 --hash=sha256:{'1' * 64}\n")
    assert error.kind == "hash-not-allowed"


def test_packages_come_from_the_index_they_are_bound_to(world: World, resolve: Resolve) -> None:
    world.index("default").add("torch", "9.9", text="# stronger version number, wrong index")
    world.index("default").add("numpy", "2.0")
    world.index("cuda").add("torch", "2.1+cu1", requires=["numpy"])
    world.index("cuda").add("numpy", "3.0")
    cuda = IndexSpec(name="cuda", url=world.index("cuda").url, packages=("Torch",))

    found = resolve("torch\n", indexes=(cuda,))

    assert pinned(found) == {"torch": "2.1+cu1", "numpy": "2.0"}
    assert {file.name: file.index for file in found.files} == {"torch": "cuda", "numpy": "default"}
    assert not [path for path in world.requests if path == "/default/simple/torch/"]


def test_a_name_on_two_indexes_is_refused_with_both(world: World, resolve: Resolve) -> None:
    world.index("default").add("pilot", "1.0", requires=["private"])
    world.index("default").add("private", "99.0")
    world.index("inner").add("private", "1.0")
    inner = IndexSpec(name="inner", url=world.index("inner").url)

    error = refusal(LockError, resolve, "pilot\n", indexes=(inner,))

    assert error.kind == "index-ambiguity"
    assert "private (default and inner)" in str(error)
    assert "pilot" not in str(error)


def test_case_b15_extra_indexes_in_a_requirements_file(
    world: World, resolve: Resolve, case: Callable[[str], Path]
) -> None:
    folder = case("B15")
    expected = json.loads((folder / "expected.json").read_text())
    text = (folder / "requirements.in").read_text()
    for number, line in enumerate(line for line in text.splitlines() if "http" in line):
        index = world.index(f"place-{number}")
        for name in expected["packages"]:
            index.add(name, f"1.{number}")
        text = text.replace(line.split()[1], index.url)

    error = refusal(LockError, resolve, text)

    assert error.kind == expected["warning"]
    for name in expected["packages"]:
        assert name in str(error)


def test_wheels_are_chosen_for_the_image_and_not_for_this_machine(world: World, resolve: Resolve) -> None:
    index = world.index("default")
    for tag in (
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp313-cp313-manylinux_2_34_aarch64",
        "cp313-cp313-manylinux_2_36_aarch64",
    ):
        index.add(
            "pilot",
            "1.0",
            tag=tag,
            requires=['arm-only; platform_machine == "aarch64"', 'old-only; python_version < "3.12"'],
        )
    index.add("arm-only", "1.0", python=">=3.13.2")
    index.add("old-only", "1.0")

    there = resolve(
        "pilot\n", platform=Platform(python="3.13", os="linux", architecture="aarch64", libc="glibc 2.35")
    )
    here = resolve("pilot\n")

    assert {file.name: file.filename for file in there.files} == {
        "arm-only": "arm_only-1.0-py3-none-any.whl",
        "pilot": "pilot-1.0-cp313-cp313-manylinux_2_34_aarch64.whl",
    }
    assert {file.name: file.filename for file in here.files} == {
        "old-only": "old_only-1.0-py3-none-any.whl",
        "pilot": "pilot-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    }


def test_a_musl_image_gets_musl_wheels(world: World, resolve: Resolve) -> None:
    for tag in ("cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-musllinux_1_1_x86_64"):
        world.index("default").add("pilot", "1.0", tag=tag)

    found = resolve("pilot\n", platform=LINUX.model_copy(update={"libc": "musl 1.2"}))

    assert found.files[0].filename == "pilot-1.0-cp311-cp311-musllinux_1_1_x86_64.whl"


def test_extras_constraints_and_setuptools_are_locked_too(world: World, resolve: Resolve) -> None:
    index = world.index("default")
    index.add("pilot", "1.0", extras=["fast"], requires=["setuptools", 'speedup; extra == "fast"'])
    index.add("setuptools", "80.0")
    for version in ("1.0", "2.0"):
        index.add("speedup", version)

    found = resolve("pilot[fast]\n", files={"limits.txt": "speedup<2\n"}, constraints=("limits.txt",))

    assert pinned(found) == {"pilot": "1.0", "setuptools": "80.0", "speedup": "1.0"}
    assert "-c limits.txt" in found.compiled


def test_nothing_of_the_machine_is_left_in_the_lock(
    world: World, resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = world.index("private", password="opensesame")
    private.add("pilot", "1.0", requires=["local"])
    offered = world.index("default").add("local", "1.0+cpu")
    links = tmp_path / "links"
    links.mkdir()
    (links / offered.filename).write_bytes(offered.data)
    limits = tmp_path / "machine-limits.txt"
    limits.write_text("pilot<2\n")
    monkeypatch.setenv("PIP_INDEX_URL", private.url.replace("//", "//reader:opensesame@"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONSTRAINT", str(limits))

    found = resolve("pilot\n")

    assert pinned(found) == {"local": "1.0+cpu", "pilot": "1.0"}
    told = found.model_dump_json()
    for secret in ("opensesame", "reader", str(tmp_path), "127.0.0.1", "machine-limits"):
        assert secret not in told


def test_a_credential_in_a_declared_index_comes_from_the_environment(
    world: World, resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = world.index("private", password="opensesame")
    private.add("pilot", "1.0")
    url = private.url.replace("//", "//reader:${INDEX_TOKEN}@")
    declared = (IndexSpec(name="private", url=url, packages=("pilot",)),)

    error = refusal(ReproError, resolve, "pilot\n", indexes=declared)
    assert error.kind == "index-refused"
    assert "INDEX_TOKEN" not in str(error)
    monkeypatch.setenv("INDEX_TOKEN", "opensesame")
    found = resolve("pilot\n", indexes=declared)

    assert found.files[0].index == "private"
    assert "opensesame" not in found.model_dump_json()


def test_settings_that_would_change_the_outcome_are_not_taken_from_the_machine(
    world: World, resolve: Resolve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.index("default").add("pilot", "1.0")
    world.index("default").add("pilot", "2.0rc1")
    monkeypatch.setenv("PIP_PRE", "1")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "pip.py").write_text("raise SystemExit('not this one')\n")

    assert pinned(resolve("pilot\n")) == {"pilot": "1.0"}
    assert not (tmp_path / "elsewhere").exists()


def test_a_change_is_as_small_as_it_can_be(world: World, resolve: Resolve) -> None:
    index = world.index("default")
    for name in ("alpha", "beta", "gamma"):
        index.add(name, "1.0")
    first = resolve("alpha\nbeta\n")
    for name in ("alpha", "beta", "gamma"):
        index.add(name, "2.0")

    kept = resolve("alpha\nbeta\ngamma\n", previous=first.files)
    one = resolve("alpha\nbeta\n", previous=first.files, upgrade=("beta",))
    everything = resolve("alpha\nbeta\n", previous=first.files, upgrade=())

    assert pinned(kept) == {"alpha": "1.0", "beta": "1.0", "gamma": "2.0"}
    assert pinned(one) == {"alpha": "1.0", "beta": "2.0"}
    assert pinned(everything) == {"alpha": "2.0", "beta": "2.0"}


def test_a_yanked_release_is_warned_of(world: World, resolve: Resolve) -> None:
    world.index("default", json=True).add("pilot", "1.0", yanked="wrong gradients")

    found = resolve("pilot==1.0\n")

    assert found.warnings == ("pilot 1.0 was yanked from its index: wrong gradients",)


def test_a_wheel_by_url_is_locked_by_its_bytes(world: World, resolve: Resolve) -> None:
    offered = world.index("other").add("pilot", "1.0")

    found = resolve(f"pilot @ {world.base}/other/files/{offered.filename}\n")

    assert (found.files[0].index, found.files[0].hash_source) == ("direct", "computed")
    assert found.files[0].digest == f"sha256:{hashlib.sha256(offered.data).hexdigest()}"


def test_no_version_fits(world: World, resolve: Resolve) -> None:
    world.index("default").add("pilot", "1.0", tag="cp312-cp312-win_amd64")

    error = refusal(LockError, resolve, "pilot\n")

    assert error.kind == "no-matching-wheel"
    assert "pilot" in str(error)


def test_requirements_that_exclude_each_other(world: World, resolve: Resolve) -> None:
    index = world.index("default")
    index.add("pilot", "1.0", requires=["engine<2"])
    index.add("trailer", "1.0", requires=["engine>=2"])
    for version in ("1.0", "2.0"):
        index.add("engine", version)

    error = refusal(LockError, resolve, "pilot\ntrailer\n")

    assert error.kind == "requirements-conflict"
    assert "engine<2" in str(error)
    assert "engine>=2" in str(error)


def test_an_index_that_is_not_there(resolve: Resolve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://reader:opensesame@127.0.0.1:9/simple")

    error = refusal(NetworkError, resolve, "pilot\n")

    assert error.kind == "index-unreachable"
    assert "opensesame" not in str(error)


def test_a_download_goes_on_where_it_broke(world: World, resolve: Resolve) -> None:
    offered = world.index("default").add("pilot", "1.0", text="#" * 200_000, hashed="none")
    world.cut[offered.filename] = 50_000
    found = resolve("pilot\n")

    assert found.files[0].digest == f"sha256:{hashlib.sha256(offered.data).hexdigest()}"


def test_an_interrupted_download_goes_on_the_next_time(
    world: World, resolve: Resolve, resolver: PipResolver
) -> None:
    class Impatient(Quiet):
        def advance(self, amount: int = 1, note: str = "") -> None:
            raise KeyboardInterrupt

    index = world.index("default")
    large = index.add("large", "1.0", text="#" * 5_000_000, metadata=True)
    index.add("small", "1.0", metadata=True)
    event = threading.Event()
    world.stall[large.filename] = (3_000_000, event)
    try:
        with pytest.raises(KeyboardInterrupt):
            resolve("large\nsmall\n", progress=Impatient())
    finally:
        event.set()
    (kept,) = (resolver.cache.folder / "partial").iterdir()
    assert kept.name == hashlib.sha256(large.data).hexdigest()
    assert not list((resolver.cache.folder / "work").iterdir())
    assert resolver.cache.path(digest_bytes(index.projects["small"][0].data)) is not None
    world.stall.clear()
    world.requests.clear()

    found = resolve("large\nsmall\n")

    assert found.files[0].digest == digest_bytes(large.data)
    assert not [path for path in world.requests if path.endswith("small-1.0-py3-none-any.whl")]
    assert not list((resolver.cache.folder / "partial").iterdir())


def test_an_index_that_pip_would_pass_over_in_silence_stops_the_lock(world: World, resolve: Resolve) -> None:
    world.index("default").add("pilot", "1.0")
    for text in (
        "--find-links no-such-folder\npilot\n",
        "--extra-index-url http://one.example/simple\npilot\n",
    ):
        error = refusal(NetworkError, resolve, text)
        assert error.kind == "index-unusable"


def test_locked_wheels_are_fetched_again_elsewhere(
    world: World, resolve: Resolve, resolver: PipResolver, tmp_path: Path
) -> None:
    offered = world.index("default").add("pilot", "1.0")
    found = resolve("pilot\n")
    held = resolver.cache.path(found.files[0].digest)
    assert held is not None
    before = len(world.requests)
    resolver.fetch(locked(found), root=tmp_path, progress=Quiet())
    assert len(world.requests) == before
    held.unlink()

    resolver.fetch(locked(found), root=tmp_path, progress=Quiet())

    assert held.read_bytes() == offered.data
    held.unlink()
    world.indexes["default"].projects.clear()
    with pytest.raises(LockError, match=r"pilot-1\.0") as caught:
        resolver.fetch(locked(found), root=tmp_path, progress=Quiet())
    assert caught.value.kind == "wheel-gone"


def test_wheels_of_the_projects_own_places_are_fetched_again_from_there(
    world: World, resolve: Resolve, resolver: PipResolver, tmp_path: Path
) -> None:
    world.index("default").add("pilot", "9.0")
    mine = world.index("mine").add("pilot", "1.0")
    filename, data = wheel("local", "1.0")
    (tmp_path / "project" / "wheels").mkdir(parents=True)
    (tmp_path / "project" / "wheels" / filename).write_bytes(data)
    direct = world.index("other").add("direct", "1.0")
    declared = IndexSpec(name="mine", url=world.index("mine").url, packages=("pilot",))
    text = f"--find-links wheels\npilot\nlocal\ndirect @ {world.base}/other/files/{direct.filename}\n"
    found = resolve(text, indexes=(declared,))
    expected = {"direct": direct.data, "local": data, "pilot": mine.data}
    assert {file.name: file.index for file in found.files} == {
        "direct": "direct",
        "local": "folder-wheels",
        "pilot": "mine",
    }
    for file in found.files:
        held = resolver.cache.path(file.digest)
        assert held is not None
        held.unlink()

    indexes = (
        IndexLock(name="mine", url=declared.url, flat=False),
        IndexLock(name="folder-wheels", url="wheels", flat=True),
    )
    resolver.fetch(locked(found, *indexes), root=tmp_path / "project", progress=Quiet())

    for file in found.files:
        held = resolver.cache.path(file.digest)
        assert held is not None
        assert held.read_bytes() == expected[file.name]


def test_another_file_under_a_locked_name_is_refused(
    world: World, resolve: Resolve, resolver: PipResolver, tmp_path: Path
) -> None:
    offered = world.index("default").add("pilot", "1.0")
    found = resolve("pilot\n")
    held = resolver.cache.path(found.files[0].digest)
    assert held is not None
    held.unlink()
    offered.data += b"more"

    with pytest.raises(LockError) as caught:
        resolver.fetch(locked(found), root=tmp_path, progress=Quiet())

    assert caught.value.kind == "hash-contradiction"
    assert resolver.cache.path(found.files[0].digest) is None


def test_nothing_is_left_behind(world: World, resolve: Resolve, resolver: PipResolver) -> None:
    world.index("default").add("pilot", "1.0")
    resolve("pilot\n")

    assert not list((resolver.cache.folder / "work").iterdir())
    assert not list((resolver.cache.folder / "incoming").iterdir())
    assert not list((resolver.cache.folder / "partial").iterdir())
    assert os.environ.get("PIP_CONFIG_FILE") == os.devnull


CONFIGURED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import pip, shim
shim.configure("cache")
said = pip.__version__, os.environ["PIP_INDEX_URL"], os.environ["PIP_CACHE_DIR"]
Path(sys.argv[2]).write_text(" ".join(said))
"""


@pytest.mark.parametrize("own", [False, True], ids=["the pip that Python carries", "the pip of the tests"])
def test_any_pip_reads_where_to_fetch(tmp_path: Path, own: bool) -> None:
    """Older ones give settings as they are, newer ones by file."""
    python = Path(sys.executable)
    if not own:
        subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
        python = tmp_path / "venv" / "bin" / "python"
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nindex-url = http://index.test/simple\n[install]\nno-deps = true\n")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    place = Path(shim.__file__).parent
    command = [str(python), "-c", CONFIGURED, str(place), str(tmp_path / "said")]
    subprocess.run(command, env={**kept, "PIP_CONFIG_FILE": str(settings)}, check=True)
    assert (tmp_path / "said").read_text().split()[1:] == ["http://index.test/simple", "cache"]
