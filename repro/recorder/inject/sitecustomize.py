"""Start-up hook: arms the recorder, which begins when the program has imported torch.

Found through `PYTHONPATH`. Runs the `sitecustomize` that it hides, if there is
one, and never raises.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys


def _complain(what: str, error: BaseException) -> None:
    sys.stderr.write(f"repro: {what}: {error!r}\n")


def _run_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _arm() -> None:
    name = "_repro_recorder"
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    place = os.path.join(folder, "__init__.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location(name, place, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    importlib.import_module(name + ".arm").arm()


try:
    _run_hidden()
except Exception as error:  # noqa: BLE001 - as the interpreter does with any sitecustomize
    _complain("the sitecustomize of this environment failed", error)
if os.environ.get("REPRO_TRACE"):
    try:
        _arm()
    except Exception as error:  # noqa: BLE001 - recording must never stop the program
        _complain("the recorder did not start", error)
