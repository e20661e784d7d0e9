"""Fail when a file that would be committed names a package registry or a path of somebody's machine."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Written so that no pattern matches its own line.
FORBIDDEN = {
    "names a package registry": re.compile(r"python[h]osted|py[p]i\.org|registry\.np[m]js|/simple[/]\w"),
    "sets a registry's address": re.compile(
        r"-(?:extra-)?index[-]url\b|^\s*registry\s*=\s*\"http|\"resolved\":\s*\"http"
    ),
    "names a path of one machine": re.compile(r"(?<![\w.$}~])/(?:root|work|home/\w+|Users/\w+|opt/\w+)/"),
    "holds a conflict marker": re.compile(r"^(?:<{7} |>{7} |={7}$)"),
}
# The option that keeps registries out of the lock has to name them.
ALLOWED = re.compile(r"--no-emit-index[-]url")


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = read = 0
    for name in sorted(set(filter(None, listed.stdout.split("\0")))):
        path = ROOT / name
        if not path.is_file():
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # an image
        read += 1
        patterns = dict(FORBIDDEN)
        if name.startswith("requirements/"):
            patterns["holds an address"] = re.compile(r"https?://")
        for number, line in enumerate(text.splitlines(), 1):
            for fault, pattern in patterns.items():
                if pattern.search(ALLOWED.sub("", line)):
                    print(f"{name}:{number}: {fault}: {line.strip()[:120]}")
                    found += 1
    print(f"forbidden text: {read} files read, {found} found")
    return 1 if found or not read else 0


if __name__ == "__main__":
    sys.exit(main())
