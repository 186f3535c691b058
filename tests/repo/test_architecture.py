"""Who may import whom: between the packages, and between the rooms of the daemon."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

#: The siblings that each package may import.
SIBLINGS = {
    "common": set(),
    "client": set(),
    "cluster": {"common"},
    "daemon": {"client", "common"},
    "console": {"client", "common"},
    "gateway": {"common"},
    "pipeline": {"common"},
}

#: The rooms of the daemon, from the ground up: a room imports only rooms before it.
ROOMS = (
    "platform", "model", "policy", "config", "stores", "journal", "engine", "observe", "broker", "root", "doors",
    "maintenance", "service", "cli",
)  # fmt: skip

#: The rooms of the console in the same order, and the libraries for the screen, which only one of them knows.
CONSOLE_ROOMS = ("i18n", "paths", "data", "export", "plain", "tui", "cli", "__main__")
SCREEN_LIBRARIES = {"textual", "rich"}

#: The rooms of the gateway in the same order. A dialect knows nothing but the contract; ``service`` puts all together.
GATEWAY_ROOMS = (
    "contract", "writing", "config", "observe", "lane", "serve", "dialects", "doors", "service", "cli", "__main__",
)  # fmt: skip

#: The rooms of the cluster's process in the same order.
CLUSTER_ROOMS = (
    "errors", "config", "groups", "connection", "batches", "stream", "daemon", "node", "control", "doctor", "service",
    "cli", "__main__",
)  # fmt: skip

#: Rooms of the pipeline and the rooms that each imports, the lowest first: a room imports only those before it.
PIPELINE_ROOMS = {
    "errors": set(),
    "files": set(),
    "schema": {"errors"},
    "spark": {"errors", "files", "schema"},
    "local": {"errors", "files", "spark"},
    "bronze": {"files", "schema", "spark"},
    "silver": {"schema", "bronze"},
    "reports": {"errors", "schema", "spark", "silver"},
    "pages": {"errors", "schema", "spark", "reports"},
    "lake": {"errors", "schema", "spark", "silver", "reports"},
    "jobs": {"errors", "local", "schema", "spark", "bronze", "silver", "reports", "pages"},
    "doctor": {"errors", "files", "schema", "spark"},
    "package": {"errors"},
    "cli": {"errors", "spark", "reports", "lake", "jobs", "local", "doctor", "package"},
    "__main__": {"cli"},
}

#: Rooms that do no I/O and have no clock of their own.
PURE_ROOMS = ("engine", "model")
#: A page of a selection ends after some milliseconds of looking, whatever the state of the queue.
BOUNDED_BY_TIME = {("engine/selection.py", "time")}
IO_MODULES = {
    "asyncio", "ctypes", "fcntl", "glob", "io", "mmap", "os", "pathlib", "select", "selectors", "shutil",
    "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "watchdog",
}  # fmt: skip

#: The mailbox's directory names, and the rooms that may use them.
MAILBOX_NAMES = {"REQUESTS_DIR", "RESPONSES_DIR", "DEAD_DIR", "REQUEST_SUFFIX"}
MAILBOX_ROOMS = {"doors", "config"}


def modules(source: Path) -> list[Path]:
    found = sorted(source.rglob("*.py"))
    assert found, f"no module in {source}"
    return found


@cache
def imports(path: Path, source: Path) -> list[tuple[str, int]]:
    """Every import of a file as an absolute dotted name, with its line; ``from x import y`` gives ``x.y``."""
    found = []
    package = [source.name, *path.relative_to(source).with_suffix("").parts][:-1]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found += [(f"{origin}.{alias.name}", node.lineno) for alias in node.names]
    return found


def room_of(path: Path, source: Path) -> str:
    first = path.relative_to(source).parts[0]
    return first.removesuffix(".py")


def daemon_source(root: Path) -> Path:
    return root / "packages" / "daemon" / "src" / "postroom_daemon"


def daemon_imports(root: Path) -> Iterator[tuple[Path, str, str, int]]:
    """Module, its room, the room that it imports, the line: inside the daemon."""
    source = daemon_source(root)
    for path in modules(source):
        for name, line in imports(path, source):
            parts = name.split(".")
            if parts[0] == "postroom_daemon" and len(parts) > 1:
                yield path, room_of(path, source), parts[1], line


def test_a_room_of_the_console_imports_only_rooms_before_it(root):
    source = root / "packages" / "console" / "src" / "postroom_console"
    for path in modules(source):
        room = room_of(path, source)
        if room == "__init__":
            continue
        before = CONSOLE_ROOMS[: CONSOLE_ROOMS.index(room) + 1]
        for name, line in imports(path, source):
            parts = name.split(".")
            if parts[0] == source.name and len(parts) > 1:
                assert parts[1] in before, f"{path}:{line}: {room} imports {name}"
            assert parts[0] not in SCREEN_LIBRARIES or room == "tui", f"{path}:{line}: {room} imports {name}"


def test_the_console_uses_nothing_private_of_its_libraries_for_the_screen(root):
    """Every private name that the screen uses is one of its own: so any minor version of the libraries will do."""
    source = root / "packages" / "console" / "src" / "postroom_console" / "tui"
    trees = [ast.parse(path.read_text()) for path in modules(source)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    assert {name for name in used - own if re.match("_[^_]", name)} == {"_exit"}, "os._exit alone"
    for path in modules(source):
        for name, line in imports(path, source):
            parts = name.split(".")
            private = any(part.startswith("_") for part in parts)
            assert parts[0] not in SCREEN_LIBRARIES or not private, f"{path}:{line} imports {name}"


def test_a_room_of_the_gateway_imports_only_rooms_before_it_and_a_dialect_only_the_contract(root):
    source = root / "packages" / "gateway" / "src" / "postroom_gateway"
    for path in modules(source):
        room = room_of(path, source)
        if room == "__init__":
            continue
        before = GATEWAY_ROOMS[: GATEWAY_ROOMS.index(room) + 1] if room != "dialects" else ("contract", "dialects")
        for name, line in imports(path, source):
            parts = name.split(".")
            if parts[0] == source.name and len(parts) > 1:
                assert parts[1] in before, f"{path}:{line}: {room} imports {name}"
                # One dialect never imports another.
                if room == parts[1] == "dialects" and len(path.relative_to(source).parts) > 2:
                    assert parts[2] == path.relative_to(source).parts[1], f"{path}:{line} imports {name}"


def test_a_room_of_the_cluster_imports_only_rooms_before_it(root):
    source = root / "packages" / "cluster" / "src" / "postroom_cluster"
    for path in modules(source):
        room = room_of(path, source)
        if room == "__init__":
            continue
        before = CLUSTER_ROOMS[: CLUSTER_ROOMS.index(room) + 1]
        for name, line in imports(path, source):
            parts = name.split(".")
            assert parts[0] != source.name or len(parts) == 1 or parts[1] in before, f"{path}:{line}: imports {name}"


def test_a_package_imports_only_the_siblings_it_may(package):
    allowed = {package.module} | {f"postroom_{name}" for name in SIBLINGS[package.name]}
    for path in modules(package.source):
        for name, line in imports(path, package.source):
            top = name.split(".")[0]
            assert not top.startswith("postroom") or top in allowed, f"{path}:{line} imports {name}"


def test_a_package_imports_only_what_it_declares(package):
    project = package.project["project"]
    requirements = [*project["dependencies"], *chain.from_iterable(project.get("optional-dependencies", {}).values())]
    declared = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].replace("-", "_") for requirement in requirements}
    brought = {
        top: {name.replace("-", "_") for name in names} | {top} for top, names in packages_distributions().items()
    }
    used = set()
    for path in modules(package.source):
        for name, line in imports(path, package.source):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names and top not in (package.module, "__builtin__"):
                used.add(top)
                assert declared & brought.get(top, {top}) or package.name == "client", (
                    f"{path}:{line} imports {name}, not declared"
                )
    if package.name == "client":
        assert not declared


def test_the_client_imports_its_own_modules_relatively_and_otherwise_only_the_standard_library(root):
    source = root / "packages" / "client" / "src" / "postroom_client"
    python_2_only = {"__builtin__", "Queue", "thread", "urlparse"}
    for path in modules(source):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            else:
                continue
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names | python_2_only, f"{path}:{node.lineno} imports {name}"


def test_no_class_of_the_client_inherits_from_another_but_errors_and_transports(root):
    """Inheritance says that one thing is another. It is no way to spread a class over several files."""
    source = root / "packages" / "client" / "src" / "postroom_client"
    classes = {
        node.name: (path, node)
        for path in modules(source)
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.ClassDef)
    }
    for name, (path, node) in classes.items():
        bases = {base.id for base in node.bases if isinstance(base, ast.Name)} & set(classes)
        assert path.name == "errors.py" or bases <= {"Transport", "Exchange"}, f"{path}: {name} inherits from {bases}"


def test_the_daemon_uses_the_client_in_one_module_of_maintenance(root):
    source = daemon_source(root)
    users = {
        path.relative_to(source).as_posix()
        for path in modules(source)
        for name, _ in imports(path, source)
        if name.split(".")[0] == "postroom_client"
    }
    assert users == {"maintenance/connect.py"}


def test_the_daemon_has_its_rooms_and_no_other(root):
    source = daemon_source(root)
    rooms = {room_of(path, source) for path in modules(source)} - {"__init__", "__main__"}
    assert sorted(rooms) == sorted(ROOMS)


def test_no_room_of_the_daemon_imports_a_room_above_it(root):
    for path, importer, imported, line in daemon_imports(root):
        if importer not in ("__init__", "__main__"):
            assert ROOMS.index(imported) <= ROOMS.index(importer), f"{path}:{line}: {importer} imports {imported}"


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_a_pure_room_does_no_io_and_reads_no_clock(room, root):
    source = daemon_source(root)
    paths = [path for path in modules(source) if room_of(path, source) == room]
    assert paths, f"the daemon has no room {room}"
    for path in paths:
        for name, line in imports(path, source):
            if (path.relative_to(source).as_posix(), name) in BOUNDED_BY_TIME:
                continue
            assert name == "os" or name.split(".")[0] not in IO_MODULES, f"{path}:{line} imports {name}"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                assert node.attr == "urandom", f"{path}:{node.lineno} uses os.{node.attr}"  # new ids need chance
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "datetime":
                assert node.attr not in ("now", "today", "utcnow"), f"{path}:{node.lineno} reads the clock"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "print", "input"), f"{path}:{node.lineno} calls {node.func.id}"


def test_every_room_of_the_daemon_is_named_in_the_architecture(root):
    rows = re.findall(r"^\| `(\w+)/?` \|", (root / "docs" / "architecture.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(ROOMS)


def test_only_the_mailbox_touches_the_mailbox(root):
    source = daemon_source(root)
    for path in modules(source):
        for name, line in imports(path, source):
            if name.rpartition(".")[2] in MAILBOX_NAMES:
                assert room_of(path, source) in MAILBOX_ROOMS, f"{path}:{line} uses {name}"


def pipeline_source(root: Path) -> Path:
    return root / "packages" / "pipeline" / "src" / "postroom_pipeline"


def test_a_room_of_the_pipeline_imports_only_the_rooms_below_it(root):
    source = pipeline_source(root)
    arrows: dict[str, set[str]] = {room_of(path, source): set() for path in modules(source)}
    for path in modules(source):
        for name, _ in imports(path, source):
            parts = name.split(".")
            if parts[0] == source.name and len(parts) > 1 and parts[1] != room_of(path, source):
                arrows[room_of(path, source)].add(parts[1])
    assert arrows.pop("__init__") == set()
    assert arrows == PIPELINE_ROOMS
    below: set[str] = set()
    for room, imported in PIPELINE_ROOMS.items():
        assert imported <= below, f"{room} imports {imported - below}, which are not below it"
        below.add(room)


def test_only_the_warehouse_writes_tables_and_only_the_session_module_starts_spark(root):
    source = pipeline_source(root)
    #: What only one module of the pipeline asks of Spark; nobody chooses a master.
    reserved = {
        r"\.write\.\w|\.write$|\.(parquet|saveAsTable|writeTo|insertInto)\(": "spark/warehouse.py",
        r"\.getOrCreate\(": "spark/session.py",
        r"\.remote\(": "spark/connect.py",
        r"\.(master|setMaster)\(": "",
    }
    for path in modules(source):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, module in reserved.items():
                assert path.relative_to(source).as_posix() == module or not re.search(pattern, line), (
                    f"{path}:{number}: {line.strip()}"
                )


@pytest.mark.parametrize("room", ["silver", "reports"])
def test_tables_are_built_by_functions_from_frames_to_frames(room, root):
    source = pipeline_source(root)
    for path in modules(source):
        for name, line in imports(path, source):
            writes = name.startswith(("postroom_pipeline.spark.warehouse", "postroom_pipeline.spark.storage"))
            assert room_of(path, source) != room or not writes, f"{path}:{line} imports {name}"


@pytest.mark.parametrize("suffix", ["py", "pyi"])
def test_no_modules_import_each_other_in_a_circle(package, suffix):
    """Imports inside of functions count, and those of the stubs."""
    paths = sorted(package.source.rglob(f"*.{suffix}"))
    names = {
        ".".join([package.module, *path.relative_to(package.source).with_suffix("").parts]).removesuffix(
            ".__init__"
        ): path
        for path in paths
    }
    edges = {
        module: {
            target
            for name, _ in imports(path, package.source)
            for target in (name, name.rpartition(".")[0])
            # A package's own __init__ is loaded before its modules anyway.
            if target in names and target != module and names[target].stem != "__init__"
        }
        for module, path in names.items()
    }
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for target in sorted(edges[module]):
                walk(target, (*trail, module))
            done.add(module)

    for module in sorted(edges):
        walk(module, ())
