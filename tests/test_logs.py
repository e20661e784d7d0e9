"""Every log call of the package says in `extra` what happened, and of which run if it is about one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "byline"
LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOGGERS = frozenset({"_log", "_logger"})


def calls() -> Iterator[tuple[str, ast.Call, ast.AST]]:
    """Each log call, where it stands, and the function around it."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=logger), attr=level)) if (
                    logger in LOGGERS and level in LEVELS
                ):
                    around = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
                    where = f"{path.relative_to(SOURCE).as_posix()}:{node.lineno}"
                    yield where, node, max(around, key=lambda f: f.lineno)
                case _:
                    pass


def extra_of(call: ast.Call, around: ast.AST) -> dict[str, ast.expr] | None:
    """What `extra` holds: a dict in the call, or the one of that name in the same function that stands next above."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "extra"), None)
    if isinstance(given, ast.Name):
        made = [
            node.value
            for node in ast.walk(around)
            if isinstance(node, ast.Assign)
            and node.lineno < call.lineno
            and any(isinstance(target, ast.Name) and target.id == given.id for target in node.targets)
        ]
        given = made[-1] if made else None
    if not isinstance(given, ast.Dict):
        return None
    return {key.value: value for key, value in zip(given.keys, given.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)}  # fmt: skip


def test_logs_are_found_as_they_are_written_here() -> None:
    """Whoever logs otherwise is not found above: by a logger of another name, or by `logging` itself."""
    text = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    assert set(re.findall(r"^(\w+)(?:: \w+)? = logging\.getLogger\(", text, re.MULTILINE)) == LOGGERS
    assert not re.findall(rf"\blogging\.(?:{'|'.join(LEVELS)})\(", text)
    assert len(list(calls())) > 25


def test_every_log_says_what_happened() -> None:
    missing = [where for where, call, around in calls() if "action" not in (extra_of(call, around) or {})]
    assert missing == []


def test_every_log_that_names_a_run_says_it_in_a_field() -> None:
    missing: list[str] = []
    for where, call, around in calls():
        said = call.args[1] if call.args and not isinstance(call.args[0], ast.Constant) else call.args[0]
        text = said.value if isinstance(said, ast.Constant) else ""
        extra = extra_of(call, around) or {}
        about_a_run = isinstance(text, str) and re.search(r"\b[Rr]un %s", text)
        if about_a_run and "run_id" not in extra:
            missing.append(where)
    assert missing == []


def test_an_action_is_a_word_that_can_be_searched_for() -> None:
    named = {
        value.value
        for _, call, around in calls()
        if isinstance(value := (extra_of(call, around) or {}).get("action"), ast.Constant)
    }
    assert all(isinstance(action, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*", action) for action in named)


@pytest.mark.parametrize("page", ["telemetry.md"])
def test_the_documented_actions_are_those_that_are_logged(page: str) -> None:
    text = (SOURCE.parents[1] / "docs" / page).read_text("utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", text.partition("## Logs")[2], re.MULTILINE))
    logged = {
        value.value
        for _, call, around in calls()
        if isinstance(value := (extra_of(call, around) or {}).get("action"), ast.Constant)
    }
    heard = {f"{role}_{outcome}" for role in ("listener", "dispatcher") for outcome in ("failed", "late", "skipped")}
    assert documented == logged | heard
