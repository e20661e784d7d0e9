"""The shape of the package: what its promises of "one place" and "none" rest on, read from its source."""

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import byline

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "byline"
MODULES = sorted(SOURCE.rglob("*.py"))

# Modules past this many lines have two subjects, or stand here with the reason why they have one.
MOST_LINES = 400
LONG_FOR_A_REASON: dict[str, str] = {
    "loop.py": "one class, the way of a turn from its answer to its results: all that leads to `invoke`, in one view",
    "runtime/segment.py": "one class, the life of one segment: every way in which it ends, beside the others",
    "runtime/runtime.py": "the public face: one class, most of it what each method takes, gives and raises",
    "store/protocol.py": "the contract of every store in one place: values and docstrings, no code",
}

# `AgentRuntime.execute(run_id)` runs a segment, not a tool: a receiver of one of these names is a runtime.
RUNTIMES = frozenset({"runtime", "_runtime"})


def named(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def last_name(node: ast.expr) -> str:
    """The last part of `a.b.c`, whatever stands before it."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def uses(attribute: str, path: Path) -> Iterator[tuple[str, ast.Attribute]]:
    """Where `x.attribute` is read, called or not, with the dotted name of the enclosing definition.

    A reference counts as a call: `submit(tool.execute, …)` runs it as well.
    """

    def walk(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, ast.Attribute]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Attribute) and child.attr == attribute and isinstance(child.ctx, ast.Load):
                yield ".".join(scope), child
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from walk(child, (*scope, child.name))
            else:
                yield from walk(child, scope)

    yield from walk(tree_of(path), ())


def imports(path: Path) -> Iterator[str]:
    """Every dotted name that a module imports, anywhere in it."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


# -- P1: one place


@pytest.mark.promise("P1")
def test_a_tool_is_executed_from_one_line() -> None:
    found = [
        f"{named(path)}: {scope}"
        for path in MODULES
        if not named(path).startswith(("store/", "queue/postgresql.py"))  # there, a connection executes SQL
        for scope, use in uses("execute", path)
        if last_name(use.value) not in RUNTIMES
    ]
    assert found == ["loop.py: ToolLoop.invoke"]


@pytest.mark.promise("P1")
def test_what_is_counted_is_what_a_tool_is_run_by() -> None:
    defined = {named(path) for path in MODULES for function in functions(path) if function.name == "execute"}
    assert "tools/protocol.py" in defined, "the Tool protocol has no `execute`: the count above counts nothing"


@pytest.mark.promise("P1")
def test_an_event_is_dispatched_from_one_line() -> None:
    found = [
        (named(path), scope.partition(".")[0])
        for path in MODULES
        if named(path) != "announcing.py"
        for scope, _ in uses("dispatch", path)
    ]
    assert found == [("loop.py", "ToolLoop")]


@pytest.mark.promise("P1")
def test_an_event_is_made_in_one_place() -> None:
    made = [
        named(path)
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and last_name(node.func) == "AfterAiRecordWrittenEvent"
    ]
    assert made == ["loop.py"]


# -- P4: no listener ships


@pytest.mark.promise("P4")
def test_no_listener_is_in_the_package() -> None:
    """Outside announcing.py, only a dispatcher's `dispatch` takes the event."""
    takers = {
        (named(path), function.name)
        for path in MODULES
        for function in functions(path)
        for argument in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        if argument.annotation is not None and "AfterAiRecordWrittenEvent" in ast.unparse(argument.annotation)
    }
    assert any(module == "announcing.py" for module, _ in takers), (
        "the event's parameters are not annotated as read here"
    )
    assert {taker for taker in takers if taker[0] != "announcing.py" and taker[1] != "dispatch"} == set()

    named_so = [
        f"{named(path)}: {node.name}"
        for path in MODULES
        if named(path) != "announcing.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and "listener" in node.name.lower()
    ]
    assert named_so == []


@pytest.mark.promise("P4")
def test_a_runtime_has_no_listener_unless_it_is_given_one() -> None:
    default: object = inspect.signature(byline.AgentRuntime).parameters["listeners"].default
    assert default == ()


@pytest.mark.promise("P4")
def test_no_listener_is_found_by_configuration() -> None:
    looked_up = {
        name for path in MODULES for name in imports(path) if name.startswith(("importlib.metadata", "pkg_resources"))
    }
    assert looked_up <= {"importlib.metadata.version"}, "an installed package could bring a listener"


@pytest.mark.promise("P4")
def test_the_wheel_holds_the_package_alone(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("byline-*.whl")
    listing = subprocess.run(
        [sys.executable, "-m", "zipfile", "--list", str(wheel)], capture_output=True, text=True, check=True
    )
    names = [line.split()[0] for line in listing.stdout.splitlines()[1:]]
    assert "byline/announcing.py" in names
    assert "byline/py.typed" in names
    assert [name for name in names if not name.startswith(("byline/", "byline-"))] == []
    assert [name for name in names if "example" in name or "listener" in name] == []


# -- P25: a stated surface


@pytest.mark.promise("P25")
def test_the_public_surface_is_the_committed_one() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts" / "signatures.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.promise("P25")
def test_every_public_name_is_consumer_api_or_extension_point() -> None:
    consumer, extension = set(byline.CONSUMER_API), set(byline.EXTENSION_POINTS)
    assert consumer
    assert extension
    assert consumer & extension == set()
    assert consumer | extension == set(byline.__all__)
    assert [name for name in byline.__all__ if not hasattr(byline, name)] == []


# -- Imports


def test_importing_byline_imports_no_provider_no_broker_and_no_migrations() -> None:
    code = "import byline, json, sys; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(printed.stdout))
    assert "byline" in loaded
    assert loaded & {"alembic", "anthropic", "cryptography", "openai", "pydantic_ai", "sqlalchemy", "typer"} == set()
    assert loaded & {"aio_pika", "amqp", "celery", "kombu", "taskiq", "taskiq_aio_pika"} == set()


def test_the_package_imports_from_its_modules_not_from_its_face() -> None:
    through_the_face = [
        f"{named(path)}: {name}"
        for path in MODULES
        if named(path) != "__init__.py"
        for name in imports(path)
        if name == "byline" or (name.count(".") == 1 and name.removeprefix("byline.") in byline.__all__)
    ]
    assert through_the_face == []


# -- Modules


def test_no_module_is_a_drawer() -> None:
    drawers = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
    parts = {part.removesuffix(".py").strip("_") for path in MODULES for part in named(path).split("/")}
    assert "loop" in parts
    assert parts & drawers == set()


def test_a_long_module_has_a_reason() -> None:
    long = {named(path): count for path in MODULES if (count := len(path.read_text("utf-8").splitlines())) > MOST_LINES}
    assert {name: count for name, count in long.items() if name not in LONG_FOR_A_REASON} == {}
    assert set(LONG_FOR_A_REASON) - set(long) == set(), "no longer long: take it off the list"
