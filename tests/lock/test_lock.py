"""Spec → Lock, and whether it still holds."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from packaging.pylock import Pylock

from repro import strictjson
from repro.adapters.cache import FileCache
from repro.adapters.files import write_together
from repro.digest import digest_bytes
from repro.errors import LockError
from repro.lock import Lock, PackageFile, PackageLock, Platform
from repro.ports import ArtifactSource, Progress
from repro.resolution import Found, Inputs, Reference, Resolution
from repro.resolve import Freshness, LockResult, check, lock
from repro.resolve.places import places
from repro.run.pilot import pilot_environment
from repro.spec import Spec
from tests.lock.lock_world import NoGit, OneBase, Quiet


@dataclass
class Shelf:
    """A resolver with a shelf of made-up wheels: `name==version` gives that, a bare name version 1."""

    asked: list[Inputs] = field(default_factory=list)
    kept: list[dict[str, str]] = field(default_factory=list)
    platforms: list[Platform] = field(default_factory=list)
    fetched: list[list[str]] = field(default_factory=list)

    def resolve(
        self,
        inputs: Inputs,
        *,
        platform: Platform,
        previous: Sequence[PackageFile],
        upgrade: Sequence[str] | None,
        progress: object,
    ) -> Resolution:
        self.asked.append(inputs)
        self.kept.append({file.name: file.version for file in previous})
        self.platforms.append(platform)
        lines = [line for text in inputs.documents.values() for line in text.split() if line[0] != "-"]
        files = tuple(self._file(*line.partition("==")[::2]) for line in sorted(lines))
        compiled = "".join(
            f"{file.name}=={file.version} \\\n    --hash={file.digest}\n    # via -r requirements.in\n"
            for file in files
        )
        return Resolution(
            compiled=compiled, pip=self._file("pip", "26.3"), files=files, tools={"pip": "26.3"}
        )

    def _file(self, name: str, version: str) -> PackageFile:
        version = version or "1"
        filename = f"{name}-{version}-py3-none-any.whl"
        return PackageFile(
            name=name,
            version=version,
            filename=filename,
            size=len(filename),
            digest=digest_bytes(filename.encode()),
            index="default",
            hash_source="published",
            requested=True,
        )

    def fetch(self, packages: PackageLock, *, root: Path, progress: object) -> None:
        self.fetched.append([file.name for file in packages.files])


class Project:
    """A small project on disk, locked as the command line would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = FileCache(root.parent / "cache")
        self.shelf = Shelf()
        self.bases = OneBase()
        self.sources: dict[str, ArtifactSource] = {}
        self.tree: dict[str, Any] = {
            "version": 1,
            "name": "pilot",
            "pilot": {"command": ["python", "train.py"], "source": ["train.py", "configs"], "steps": 5},
            "seed": 7,
            "datasets": [{"name": "corpus", "path": "data"}],
            "accelerators": {
                name: {"dockerfile": f"Dockerfile.{name}", "base": f"base:{name}", "requirements": ["r.in"]}
                for name in ("cpu", "cuda")
            },
        }
        files = {
            "train.py": "pass\n",
            "configs/a.yaml": "a: 1\n",
            "configs/z.yaml": "",
            "data/one.txt": "one",
            "r.in": "numpy\n",
        }
        files |= {"Dockerfile.cpu": "ARG BASE\nFROM ${BASE}\n", "Dockerfile.cuda": "ARG BASE\nFROM ${BASE}\n"}
        for path, text in files.items():
            self.write(path, text)
        self.last: Lock | None = None

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def accelerator(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.tree["accelerators"][name]
        return found

    @property
    def spec(self) -> Spec:
        return Spec.parse(self.tree)

    def lock(self, *accelerators: str, upgrade: Sequence[str] | None = None) -> LockResult:
        result = lock(
            self.spec,
            accelerators or ("cpu", "cuda"),
            root=self.root,
            architecture="amd64",
            resolver=self.shelf,
            base_finder=self.bases,
            git=NoGit(),
            cache=self.cache,
            sources=self.sources,
            progress=Quiet(),
            previous=self.last,
            upgrade=upgrade,
        )
        write_together(self.root, result.files, last="repro.lock")
        self.last = result.lock
        return result

    def check(self, *accelerators: str, deep: bool = False) -> Freshness:
        assert self.last is not None
        return check(
            self.spec,
            self.last,
            self.root,
            places=places(self.last, self.root, self.cache),
            accelerators=accelerators or None,
            deep=deep,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project that was never locked."""
    root = tmp_path / "project"
    root.mkdir()
    return Project(root)


def test_the_lock_is_strict_json_and_reads_back(project: Project) -> None:
    made = project.lock().lock
    data = (project.root / "repro.lock").read_bytes()
    assert Lock.parse(strictjson.loads(data, where="repro.lock")) == made
    assert data.endswith(b"}\n")
    assert json.dumps(json.loads(data), indent=2, sort_keys=True).encode() + b"\n" == data
    cpu = made.accelerators["cpu"]
    for field_name, path in (
        ("requirements", "locks/requirements.cpu.txt"),
        ("pylock", "locks/pylock.cpu.toml"),
        ("compiled", "locks/compiled.cpu.txt"),
    ):
        assert getattr(cpu.packages, field_name) == digest_bytes((project.root / path).read_bytes())
    assert [file.path for file in made.source.files] == ["configs/a.yaml", "configs/z.yaml", "train.py"]
    assert [(file.path, file.size) for file in made.datasets[0].files] == [("one.txt", 3)]
    assert made.datasets[0].target == "data"


def test_the_pylock_is_a_pep_751_lock(project: Project) -> None:
    project.lock("cpu")
    text = (project.root / "locks" / "pylock.cpu.toml").read_text()
    import tomllib

    parsed = Pylock.from_dict(tomllib.loads(text))
    (package,) = parsed.packages
    assert package.wheels is not None
    assert package.wheels[0].hashes == {"sha256": hashlib.sha256(b"numpy-1-py3-none-any.whl").hexdigest()}
    assert str(parsed.requires_python) == "==3.11.*"


def test_locking_again_asks_nobody_and_writes_nothing(project: Project) -> None:
    project.lock()
    asked = (len(project.shelf.asked), len(project.bases.asked))
    again = project.lock()
    assert (again.files, again.renewed) == ({}, ())
    assert (len(project.shelf.asked), len(project.bases.asked)) == asked
    assert project.check() == Freshness(reasons=())
    assert project.shelf.fetched == [["numpy"]] * 4


def remove(project: Project, path: str) -> None:
    (project.root / path).unlink()


def add_constraint(project: Project) -> None:
    project.accelerator("cpu")["constraints"] = ["c.txt"]
    project.write("c.txt", "")


CHANGES: list[tuple[Callable[[Project], None], str]] = [
    (lambda p: p.tree.update(seed=8), "repro.yaml: seed has changed"),
    (lambda p: p.tree["pilot"].update(steps=6), "repro.yaml: pilot.steps has changed"),
    (lambda p: p.write("train.py", "fail\n"), "train.py has changed"),
    (lambda p: p.write("configs/b.yaml", "b: 1\n"), "configs/b.yaml is new"),
    (lambda p: remove(p, "configs/a.yaml"), "configs/a.yaml is gone"),
    (lambda p: p.write("data/one.txt", "two"), "corpus: one.txt has changed"),
    (lambda p: p.write("data/two.txt", "two"), "corpus: two.txt is new"),
    (lambda p: p.write("Dockerfile.cpu", "ARG BASE\nFROM $BASE\n"), "Dockerfile.cpu has changed"),
    (lambda p: p.write("r.in", "numpy==2\n"), "r.in has changed"),
    (lambda p: p.write("locks/requirements.cpu.txt", ""), "locks/requirements.cpu.txt is not the file"),
    (lambda p: remove(p, "locks/pylock.cpu.toml"), "locks/pylock.cpu.toml is gone"),
    (
        lambda p: p.accelerator("cpu").update(base="base:2"),
        "repro.yaml: accelerators.cpu.base has changed",
    ),
    (add_constraint, "repro.yaml: accelerators.cpu.constraints has changed"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES, ids=[reason for _, reason in CHANGES])
def test_a_stale_lock_says_what_changed_and_locking_again_mends_it(
    project: Project, change: Callable[[Project], None], reason: str
) -> None:
    project.lock()
    change(project)
    found = project.check()
    assert not found.fresh
    assert reason in found.reasons[0], found.reasons
    assert len({text.split(" ")[0] for text in found.reasons}) <= 2
    project.lock()
    assert project.check().fresh


def test_a_change_for_one_accelerator_leaves_the_other(project: Project) -> None:
    project.lock()
    project.accelerator("cuda")["base"] = "base:new"
    assert project.check("cpu").fresh
    assert not project.check("cuda").fresh
    result = project.lock()
    assert result.renewed == ("cuda",)
    assert not [path for path in result.files if "cpu" in path]
    assert project.bases.asked == ["base:cpu", "base:cuda", "base:new"]


def test_changed_packages_keep_base_and_pins(project: Project) -> None:
    project.lock("cpu")
    project.write("r.in", "numpy\npyyaml\n")
    project.lock("cpu")
    assert project.bases.asked == ["base:cpu"]
    assert project.shelf.kept == [{}, {"numpy": "1"}]


def test_pins_for_another_platform_are_not_kept(project: Project) -> None:
    project.lock("cpu")
    project.accelerator("cpu")["python"] = "3.12"
    project.lock("cpu")
    assert project.shelf.kept == [{}, {}]
    assert [platform.python for platform in project.shelf.platforms] == ["3.11", "3.12"]


def test_upgrading_everything_asks_for_the_base_again(project: Project) -> None:
    project.lock("cpu")
    project.lock("cpu", upgrade=("numpy",))
    project.lock("cpu", upgrade=())
    assert project.bases.asked == ["base:cpu", "base:cpu"]
    assert len(project.shelf.asked) == 3


def test_wheels_fit_the_base_and_not_more_than_is_known_of_it(project: Project) -> None:
    project.lock("cpu")
    project.bases.libc = None
    project.lock("cuda")
    assert [platform.libc for platform in project.shelf.platforms] == ["glibc 2.36", "glibc 2.28"]
    assert {platform.architecture for platform in project.shelf.platforms} == {"x86_64"}


def test_an_accelerator_that_repro_yaml_dropped_goes_with_its_files(project: Project) -> None:
    project.lock()
    del project.tree["accelerators"]["cuda"]
    assert project.check().reasons == ("repro.yaml no longer names the accelerator cuda",)
    project.lock("cpu")
    assert sorted(path.name for path in (project.root / "locks").iterdir()) == [
        "compiled.cpu.txt",
        "pylock.cpu.toml",
        "requirements.cpu.txt",
    ]
    assert project.check().fresh


def test_outputs_and_data_are_no_source(project: Project) -> None:
    project.tree["pilot"]["source"] = ["."]
    project.write("out/step.txt", "result")
    paths = [file.path for file in project.lock().lock.source.files]
    assert "train.py" in paths
    assert not [path for path in paths if path.startswith(("out/", "data/", "locks/", "repro.lock"))]
    assert project.check().fresh


def test_large_data_is_read_only_in_a_deep_check(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.resolve.freshness.QUICK_BYTES", 2)
    project.lock("cpu")
    project.write("data/one.txt", "eno")
    quick = project.check("cpu")
    assert quick == Freshness(reasons=(), unread=("corpus: one.txt",))
    assert project.check("cpu", deep=True).reasons == ("corpus: one.txt has changed since the lock was made",)


def test_a_dockerfile_that_is_absent_or_takes_from_a_moving_image(project: Project) -> None:
    project.write("Dockerfile.cuda", "ARG BASE\nFROM ${BASE}\nCOPY --from=tool:latest / /\n")
    with pytest.raises(LockError, match="tool:latest") as caught:
        project.lock()
    assert caught.value.kind == "image-unpinned"
    remove(project, "Dockerfile.cuda")
    with pytest.raises(LockError) as caught:
        project.lock()
    assert caught.value.kind == "dockerfile-missing"
    assert not (project.root / "repro.lock").exists()


def test_the_pilot_is_told_that_there_is_no_hub(project: Project) -> None:
    told = pilot_environment(project.spec, "cpu")
    offline = {"HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"}
    assert {name for name, value in told.items() if value == "1"} >= offline


def test_an_empty_data_set_is_refused(project: Project) -> None:
    (project.root / "data" / "one.txt").unlink()
    with pytest.raises(LockError) as caught:
        project.lock()
    assert caught.value.kind == "artifact-empty"


def test_case_d05_a_pointer_where_weights_should_be(project: Project, case: Callable[[str], Path]) -> None:
    folder = case("D05")
    expected = json.loads((folder / "expected.json").read_text())
    project.write(f"model/{expected['file']}", (folder / "model" / expected["file"]).read_text())
    project.tree["models"] = [{"name": "base", "path": "model"}]
    with pytest.raises(LockError) as caught:
        project.lock()
    error = caught.value
    assert error.kind == expected["error"]
    for told in (expected["file"], expected["oid"], str(expected["size"])):
        assert told in str(error)


def test_a_model_with_a_missing_shard_is_refused(project: Project) -> None:
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    project.write("model/model.safetensors.index.json", json.dumps(index))
    project.write("model/model-1-of-2.safetensors", "weights")
    project.tree["models"] = [{"name": "base", "path": "model"}]
    with pytest.raises(LockError, match="model-2-of-2") as caught:
        project.lock()
    assert caught.value.kind == "shard-missing"


def test_files_that_run_when_they_are_loaded_are_pointed_out(project: Project) -> None:
    project.write("data/corpus.py", "print('hello')\n")
    project.write("data/cache.pkl", "")
    warnings = project.lock().warnings
    assert [text.split(" ")[1] for text in warnings] == ["cache.pkl", "corpus.py"]


def test_models_from_elsewhere_are_asked_for_once(project: Project) -> None:
    class Shop:
        asked = 0

        def materialise(self, reference: Reference, into: Path, progress: Progress) -> Found:
            self.asked += 1
            (into / "config.json").write_text("{}")
            return Found(requested=reference.text, commit="c" * 40)

    shop = Shop()
    project.sources["hub"] = shop
    project.tree["models"] = [{"name": "base", "hub": "org/model"}]
    project.lock()
    assert (project.lock().files, shop.asked) == ({}, 1)
    shutil.rmtree(project.cache.folder)
    assert project.check().fresh
    assert (project.lock().files, shop.asked) == ({}, 2)
    shop.asked = 1
    project.tree["models"][0]["revision"] = "v2"
    assert project.check().reasons == ("repro.yaml: models.base has changed since the lock was made",)
    project.lock()
    assert shop.asked == 2
    project.lock(upgrade=("numpy",))
    assert shop.asked == 2
    project.lock(upgrade=())
    assert shop.asked == 3
