"""`byline --help` is quick, and imports nothing that a look at the help does not need."""

import json
import os
import subprocess
import sys

PROVIDERS = {"anthropic", "boto3", "google", "mistralai", "openai", "pydantic_ai"}
COSTLY = PROVIDERS | {"alembic", "cryptography", "jsonschema", "rich", "sqlalchemy"}


def test_help_imports_no_provider_no_store_and_no_migrations() -> None:
    code = (
        "import sys, json\n"
        "sys.argv = ['byline', '--help']\n"
        "from byline.cli.app import main\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert ended.code == 0, ended.code\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(printed.splitlines()[-1]))
    assert "typer" in loaded
    assert "Usage: byline" in printed
    assert loaded & COSTLY == set()


def test_help_takes_less_than_0_6_seconds() -> None:
    """Of its own: what it waits for others on a busy machine is no fault of its imports."""
    taken: list[float] = []
    while len(taken) < 5 and min(taken, default=1.0) >= 0.6:
        before = os.times()
        subprocess.run([sys.executable, "-m", "byline", "--help"], capture_output=True, check=True)
        after = os.times()
        taken.append(
            after.children_user + after.children_system - before.children_user - before.children_system,
        )
    assert min(taken) < 0.6, taken
