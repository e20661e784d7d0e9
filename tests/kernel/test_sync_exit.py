"""A program that used the mirror comes to its end: a real process, which says nothing that it should not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.host import Host

ROOT = Path(__file__).resolve().parents[2]

BEGIN = """
import sys, threading
from pathlib import Path
from byline import Decision, RuntimeClosed
from tests.host import ALICE, BOB, Host
from tests.kernel.stopping import SET

host = Host(Path(sys.argv[1]))
runtime = host.runtime([[SET], "Done."])

def work(mirror):
    run = mirror.run("editor", "Please do.", actor=ALICE)
    assert run.pending is not None
    run = mirror.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
    print(run.status.value, flush=True)
"""

ENDS = {
    "it leaves": ("with runtime.sync as mirror:\n    work(mirror)\n", 0),
    "it never leaves": ("work(runtime.sync.__enter__())\n", 0),
    "it exits inside": ("with runtime.sync as mirror:\n    work(mirror)\n    sys.exit(3)\n", 3),
    "it is used on a thread": (
        "with runtime.sync as mirror:\n    t = threading.Thread(target=work, args=[mirror])\n    t.start(); t.join()\n",
        0,
    ),
    "a thread that holds up no exit is still inside": (
        "threading.Thread(target=lambda: (work(runtime.sync.__enter__()), done.set(), threading.Event().wait()),"
        " daemon=True).start()\ndone.wait()\n",
        0,
    ),
    "a thread that holds up no exit still asks": (
        "def ask():\n    while True:\n        try: runtime.sync.list_runs()\n        except RuntimeClosed: return\n"
        "work(runtime.sync.__enter__())\nthreading.Thread(target=ask, daemon=True).start()\n",
        0,
    ),
}


@pytest.mark.promise("P6", "P21")
@pytest.mark.parametrize("ends", ENDS)
def test_the_process_ends(host: Host, ends: str) -> None:
    script, code = ENDS[ends]
    command = [sys.executable, "-W", "error", "-c", f"{BEGIN}\ndone = threading.Event()\n{script}", str(host.path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("completed\n", "", code)
    assert host.heard() == [("pages:42", "updated")]
