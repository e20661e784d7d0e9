"""Write every public signature down in docs/public-api.txt, or check that the file still tells the truth.

Public is what `byline.__all__` and `byline.testing.__all__` name, and the classes of Byline that those
signatures mention. `byline` marks each of its names as consumer API or extension point by the tuples
`CONSUMER_API` and `EXTENSION_POINTS`; the snapshot is grouped by them.

Signatures are read from the source (griffe), names and marks from the imported module: both from this tree.
"""

import argparse
import difflib
import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "docs" / "public-api.txt"
HEADER = """\
The public surface of Byline: every name, and every signature behind it.
Written by `make signatures` and compared by `make check`. Do not edit.
"""
# Protocols of Python that are part of how an object is used; the other special methods are how it is built.
SPECIAL = {
    *("__init__", "__call__", "__str__", "__bool__", "__add__", "__or__"),
    *("__enter__", "__exit__", "__aenter__", "__aexit__", "__await__"),
    *("__iter__", "__next__", "__aiter__", "__anext__", "__len__", "__contains__", "__getitem__"),
}


class SurfaceError(Exception):
    """The marks and `__all__` contradict each other, or a public name leads nowhere."""


def names_in(module: str, attribute: str) -> list[str]:
    """The strings in a module's tuple or list, from this tree."""
    imported = importlib.import_module(module)
    origin = Path(str(imported.__file__)).resolve()
    if not origin.is_relative_to(ROOT / "src"):
        raise SurfaceError(f"{module} was imported from {origin}, not from this tree")
    try:
        listed: list[str] = list(getattr(imported, attribute))
    except AttributeError as error:
        raise SurfaceError(f"{module}.{attribute} is missing") from error
    if len(set(listed)) != len(listed):
        raise SurfaceError(f"{module}.{attribute} names something twice")
    return listed


def groups() -> dict[str, tuple[str, list[str]]]:
    """Heading to module and names."""
    exported = set(names_in("byline", "__all__"))
    consumer, extension = names_in("byline", "CONSUMER_API"), names_in("byline", "EXTENSION_POINTS")
    both = set(consumer) & set(extension)
    if both:
        raise SurfaceError(f"both consumer API and extension point: {', '.join(sorted(both))}")
    unmarked = exported ^ (set(consumer) | set(extension))
    if unmarked:
        raise SurfaceError(f"in __all__ or in a mark, and not in both: {', '.join(sorted(unmarked))}")
    return {
        "Consumer API (byline.CONSUMER_API): call it": ("byline", consumer),
        "Extension points (byline.EXTENSION_POINTS): implement it, or hand it in": ("byline", extension),
        "Test kit (byline.testing)": ("byline.testing", names_in("byline.testing", "__all__")),
    }


def target_of(member: griffe.Object | griffe.Alias) -> griffe.Object:
    """What a name stands for, wherever it was imported from."""
    return member.final_target if isinstance(member, griffe.Alias) else member


def decorators_of(member: griffe.Class | griffe.Function) -> list[str]:
    return [f"@{decorator.value}" for decorator in member.decorators]


def parameters_of(function: griffe.Function) -> str:
    """The parameter list as it would be written, without `self` and `cls`."""
    marks = {
        griffe.ParameterKind.var_positional: "*",
        griffe.ParameterKind.var_keyword: "**",
    }
    written: list[str] = []
    keyword_only = positional_only = False
    for parameter in function.parameters:
        if positional_only and parameter.kind is not griffe.ParameterKind.positional_only:
            written.append("/")
            positional_only = False
        if parameter.kind is griffe.ParameterKind.positional_only:
            positional_only = True
        if parameter.kind is griffe.ParameterKind.var_positional:
            keyword_only = True
        if parameter.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            written.append("*")
            keyword_only = True
        text = marks.get(parameter.kind or griffe.ParameterKind.positional_or_keyword, "") + parameter.name
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and parameter.kind not in marks:
            text += f" = {parameter.default}" if parameter.annotation is not None else f"={parameter.default}"
        written.append(text)
    if positional_only:
        written.append("/")
    if function.parent is not None and function.parent.is_class and "staticmethod" not in function.labels:
        written = written[1:]
        if written[:1] == ["/"]:  # it stood behind self alone
            written = written[1:]
    return ", ".join(written)


def function_lines(function: griffe.Function) -> list[str]:
    lines: list[str] = []
    for overload in function.overloads or []:
        lines += ["@overload", f"def {function.name}({parameters_of(overload)}) -> {overload.returns}"]
    is_async = "async " if "async" in function.labels else ""
    returns = f" -> {function.returns}" if function.returns is not None else ""
    definition = f"{is_async}def {function.name}({parameters_of(function)}){returns}"
    return [*lines, *decorators_of(function), definition]


def attribute_lines(attribute: griffe.Attribute) -> list[str]:
    if "property" in attribute.labels:
        setter = " (settable)" if "writable" in attribute.labels else ""
        return [f"property {attribute.name}: {attribute.annotation}{setter}"]
    annotation = f": {attribute.annotation}" if attribute.annotation is not None else ""
    of_instance = "instance-attribute" in attribute.labels and "class-attribute" not in attribute.labels
    value = "" if of_instance or attribute.value is None else f" = {attribute.value}"
    return [f"{attribute.name}{annotation}{value}"]


def is_public(name: str) -> bool:
    return not name.startswith("_") or name in SPECIAL


def members_of(cls: griffe.Class) -> Iterator[griffe.Object]:
    """The public members, and those inherited from bases of Byline that are not public themselves."""
    seen: set[str] = set()
    for name, member in cls.members.items():
        seen.add(name)
        if is_public(name) and not member.is_module and not (isinstance(member, griffe.Alias) and not is_public(name)):
            yield target_of(member)
    for base in cls.mro():
        if base.name.startswith("_"):
            for name, member in base.members.items():
                if name not in seen and is_public(name):
                    seen.add(name)
                    yield target_of(member)


def class_lines(cls: griffe.Class) -> list[str]:
    bases = ", ".join(str(base) for base in cls.bases)
    fields: list[str] = []
    methods: dict[str, list[str]] = {}
    for member in members_of(cls):
        match member:
            case griffe.Attribute() if "property" in member.labels:
                methods[member.name] = attribute_lines(member)
            case griffe.Attribute():
                fields += attribute_lines(member)  # in the order of the source: a constructor's, an enum's
            case griffe.Function():
                methods[member.name] = function_lines(member)
            case griffe.Class():
                methods[member.name] = class_lines(member)
            case _:
                methods[member.name] = [f"{member.kind.value} {member.name}"]
    body = fields + [line for _, lines in sorted(methods.items()) for line in lines]
    return [
        *decorators_of(cls),
        f"class {cls.name}" + (f"({bases})" if bases else ""),
        *(f"    {line}" for line in body),
    ]


def lines_of(member: griffe.Object) -> list[str]:
    match member:
        case griffe.Class():
            return class_lines(member)
        case griffe.Function():
            return function_lines(member)
        case griffe.Attribute():
            return attribute_lines(member)
        case griffe.TypeAlias():
            return [f"type {member.name} = {member.value}"]
        case _:
            raise SurfaceError(f"{member.path} is a {member.kind.value}: what is public is a class, function or value")


def expressions_in(member: griffe.Object) -> Iterator[str | griffe.Expr | None]:
    """Every annotation and base that a reader of the snapshot meets in this member."""
    match member:
        case griffe.Class():
            yield from member.bases
            for inner in members_of(member):
                yield from expressions_in(inner)
        case griffe.Function():
            yield member.returns
            for function in (member, *(member.overloads or [])):
                for parameter in function.parameters:
                    yield parameter.annotation
        case griffe.Attribute():
            yield member.annotation
            if member.parent is not None and member.parent.is_module:
                yield member.value  # `Verification: TypeAlias = Landed | NotLanded`
        case griffe.TypeAlias():
            yield member.value
        case _:
            return


def mentioned(member: griffe.Object) -> Iterator[str]:
    """The dotted paths of Byline's own names in the member's signatures."""
    for expression in expressions_in(member):
        if isinstance(expression, griffe.Expr):
            for part in expression.iterate(flat=True):
                if isinstance(part, griffe.ExprName) and part.canonical_path.startswith("byline."):
                    yield part.canonical_path


def snapshot() -> str:
    """The whole text."""
    package = griffe.load("byline", search_paths=[ROOT / "src"], resolve_aliases=True, resolve_external=False)
    assert isinstance(package, griffe.Module)
    sections: list[str] = [HEADER]
    listed: set[str] = set()
    waiting: list[griffe.Object] = []
    for heading, (module, names) in groups().items():
        sections.append(f"{heading}\n{'=' * len(heading)}\n")
        home = package if module == "byline" else package[module.removeprefix("byline.")]
        for name in sorted(names, key=str.casefold):
            try:
                member = target_of(home[name])
            except (KeyError, griffe.AliasResolutionError) as error:
                raise SurfaceError(
                    f"{module}.{name} is in a list of names, but the source has no such thing"
                ) from error
            sections.append("\n".join(block_of(member)))
            listed.add(member.path)
            waiting.append(member)
    behind = {member.path: member for member in reachable(package, waiting, listed)}
    if behind:
        heading = "Not exported, but met in a signature above"
        sections.append(f"{heading}\n{'=' * len(heading)}\n")
        sections += ["\n".join(block_of(member)) for _, member in sorted(behind.items())]
    return "\n".join(sections)


def block_of(member: griffe.Object) -> Iterable[str]:
    return [f"# {member.path}", *lines_of(member), ""]


def reachable(package: griffe.Module, waiting: list[griffe.Object], listed: set[str]) -> Iterator[griffe.Object]:
    """Follow the annotations to the names that are not listed yet."""
    while waiting:
        for path in sorted(set(mentioned(waiting.pop()))):
            try:
                member = target_of(package[path.removeprefix("byline.")])
            except (KeyError, griffe.AliasResolutionError):
                continue  # a type variable, or a name that only a checker knows
            if member.path not in listed and not member.is_module and not member.name.startswith("_"):
                listed.add(member.path)
                waiting.append(member)
                yield member


def main() -> int:
    parser = argparse.ArgumentParser(description="Write or check docs/public-api.txt.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    try:
        now = snapshot()
    except SurfaceError as error:
        print(f"public surface: {error}")
        return 1
    if not options.check:
        SNAPSHOT.parent.mkdir(exist_ok=True)
        SNAPSHOT.write_text(now, "utf-8")
        print(f"wrote {SNAPSHOT.relative_to(ROOT)}")
        return 0
    before = SNAPSHOT.read_text("utf-8") if SNAPSHOT.exists() else ""
    if before == now:
        print("public surface: as committed")
        return 0
    name = str(SNAPSHOT.relative_to(ROOT))
    sys.stdout.writelines(
        difflib.unified_diff(
            before.splitlines(True), now.splitlines(True), f"{name} (committed)", f"{name} (this tree)"
        )
    )
    print(
        "\nThe public surface changed. If you meant it: run `make signatures`, commit docs/public-api.txt,"
        "\nand tell users in a changelog fragment (changelog.d/NAME.feature.md, or NAME.breaking.md if their"
        "\ncode must change). If not, mend the code."
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
