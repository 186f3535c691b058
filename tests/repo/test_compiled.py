"""The wheel of the daemon is pure Python; some modules can be compiled into it, and those are fit for it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from release.building import build
from release.packages import Package, find_package


@pytest.fixture(scope="module")
def daemon(root: Path) -> Package:
    return find_package("daemon", root)


def listed(daemon: Package) -> list[str]:
    """The modules that are compiled on demand."""
    modules: list[str] = daemon.project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    return modules


def test_each_module_that_is_compiled_exists_and_is_listed_once_in_order(daemon):
    assert listed(daemon) == sorted(set(listed(daemon)))
    for name in listed(daemon):
        assert (daemon.directory / "src" / name).is_file(), name


def test_every_function_that_is_compiled_has_types(daemon):
    """mypyc treats what has no annotation as any object, and is no faster than the interpreter then."""
    for name in listed(daemon):
        for node in ast.walk(ast.parse((daemon.directory / "src" / name).read_text())):
            if isinstance(node, ast.FunctionDef):
                args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                bare = [one.arg for one in args if one.annotation is None and one.arg not in ("self", "cls")]
                assert node.returns is not None and not bare, f"{name}:{node.lineno}"


def test_no_interpreted_class_inherits_from_a_compiled_one(daemon):
    """Machine code calls its own classes without looking for another method; mypyc refuses such a class when it is
    made."""
    trees = {
        path.relative_to(daemon.directory / "src").as_posix(): ast.parse(path.read_text())
        for path in daemon.source.rglob("*.py")
    }
    classes = {
        module: [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] for module, tree in trees.items()
    }
    native = {
        node.name
        for module in listed(daemon)
        for node in classes[module]
        if not re.search(r"NamedTuple|Enum|Exception|Error|Protocol", ast.unparse(node).split(":")[0])
    }
    for module in set(classes) - set(listed(daemon)):
        for node in classes[module]:
            bases = {ast.unparse(base).split("[")[0] for base in node.bases}
            assert not bases & native, f"{module}: {node.name} inherits from {bases & native}"


def test_no_function_that_is_compiled_gives_one_name_to_errors_of_two_types(daemon):
    """mypyc takes the type of the first one for all of them, and raises ``TypeError`` for the second."""
    for name in listed(daemon):
        for function in ast.walk(ast.parse((daemon.directory / "src" / name).read_text())):
            if isinstance(function, ast.FunctionDef):
                types: dict[str, str] = {}
                for node in ast.walk(function):
                    if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                        caught = ast.unparse(node.type)
                        assert types.setdefault(node.name, caught) == caught, f"{name}:{node.lineno}: {node.name}"


def test_the_wheel_is_pure_python_unless_it_is_asked_for_machine_code(daemon, tmp_path):
    wheel = build(daemon, tmp_path, "wheel")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [one for one in zipfile.ZipFile(wheel).namelist() if one.endswith(".so") or "hatch_build" in one]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_a_compiled_wheel_is_for_this_processor_and_its_modules_are_machine_code(root, daemon, tmp_path):
    """With one module: all of them take minutes (``scripts/test --compiled``)."""
    for name in ("common", "daemon"):
        shutil.copytree(root / "packages" / name, tmp_path / "packages" / name)
    copy = Package(tmp_path / "packages" / "daemon")
    project = copy.directory / "pyproject.toml"
    module = "postroom_daemon/platform/histogram.py"
    text = re.sub(r"^modules = \[.*?^\]", f'modules = ["{module}"]', project.read_text(), flags=re.M | re.S)
    project.write_text(text)
    wheel = build(copy, tmp_path / "out", "wheel", is_compiled=True)
    assert not wheel.name.endswith("-any.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    ask = "from postroom_daemon.platform import histogram as h; print(h.__file__, h.Histogram().max)"
    command = [sys.executable, "-c", ask]
    run = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, check=True
    )
    place, largest = run.stdout.split()
    assert place.startswith(str(tmp_path)) and place.endswith(".so") and largest == "0"
