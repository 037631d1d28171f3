"""`make audit`: what pip-audit says is passed on, and what it did not look up is not passed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "audit.py"
FLAW = {"id": "PYSEC-1", "fix_versions": ["2.1", "3.0"], "aliases": ["CVE-1"], "description": "…"}
SOUND = {"name": "one", "version": "1.0", "vulns": []}
FLAWED = {"name": "two", "version": "2.0", "vulns": [FLAW]}
OPEN = {"name": "three", "version": "3.0", "vulns": [{**FLAW, "fix_versions": [], "aliases": []}]}
SKIPPED = {"name": "four", "skip_reason": "Dependency not found on PyPI: four (4.0)"}


class PipAudit:
    """Stands in for pip-audit: says what it is told to say of each file of requirements."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "pip-audit"
        self.path.write_text(
            f"#!{sys.executable}\n"
            "import json, pathlib, sys\n"
            "file = sys.argv[sys.argv.index('--requirement') + 1]\n"
            "assert {'--require-hashes', '--disable-pip'} <= set(sys.argv)\n"
            "told = json.loads(pathlib.Path(file).read_text())\n"
            "print(told['out'])\n"
            "print(told['err'], file=sys.stderr)\n"
            "sys.exit(told['code'])\n"
        )
        self.path.chmod(0o755)

    def says(self, name: str, out: str, *, err: str = "", code: int = 0) -> Path:
        path = self.folder / name
        path.write_text(json.dumps({"out": out, "err": err, "code": code}))
        return path

    def lists(self, name: str, *packages: dict[str, Any]) -> Path:
        code = int(any(package.get("vulns") for package in packages))
        return self.says(name, json.dumps({"dependencies": packages, "fixes": []}), code=code)


@pytest.fixture
def pip_audit(tmp_path: Path) -> PipAudit:
    return PipAudit(tmp_path)


def audit(tool: PipAudit, *files: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tool.path), *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (done.stdout and done.stderr)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_sound_packages_are_counted_over_all_files(pip_audit: PipAudit) -> None:
    files = pip_audit.lists("a.txt", SOUND, SOUND), pip_audit.lists("b.txt", SOUND)
    assert audit(pip_audit, *files) == (0, ["audit: no known flaw in 3 packages"])


def test_each_flaw_has_its_line(pip_audit: PipAudit) -> None:
    file = pip_audit.lists("a.txt", SOUND, FLAWED, OPEN)
    assert audit(pip_audit, file) == (
        1,
        [
            "audit: two 2.0: PYSEC-1, CVE-1; mended in 2.1, 3.0",
            "audit: three 3.0: PYSEC-1; open",
            "audit: 2 known flaws",
        ],
    )


def test_what_was_not_looked_up_is_not_passed(pip_audit: PipAudit) -> None:
    """pip-audit itself exits with 0, and says that there are no known flaws."""
    code, lines = audit(pip_audit, pip_audit.lists("a.txt", SOUND, SKIPPED))
    assert code == 3
    (line,) = lines
    assert line.startswith("audit: 1 of 2 packages were not looked up: Dependency not found")


def test_a_flaw_is_said_beside_what_was_not_looked_up(pip_audit: PipAudit) -> None:
    code, lines = audit(pip_audit, pip_audit.lists("a.txt", FLAWED, SKIPPED))
    assert code == 1
    assert len(lines) == 2
    assert "1 known flaws; 1 of 2 packages were not looked up" in lines[-1]


def test_without_a_network_there_is_one_line_with_the_last_word_of_the_tool(
    pip_audit: PipAudit,
) -> None:
    files = (
        pip_audit.lists("a.txt", SOUND),
        pip_audit.says("b.txt", "", err="Traceback\n  much\nConnectionError: no route\n", code=1),
    )
    code, lines = audit(pip_audit, *files)
    assert code == 3
    (line,) = lines
    assert "b.txt: ConnectionError: no route" in line


@pytest.mark.parametrize("out", ["", "no json", "{}"])
def test_an_answer_that_is_none_is_not_passed(pip_audit: PipAudit, out: str) -> None:
    code, (line,) = audit(pip_audit, pip_audit.says("a.txt", out))
    assert code == 3
    assert "a.txt: pip-audit said nothing" in line


def test_the_tools_are_pinned_by_hashes_and_name_no_index() -> None:
    text = (ROOT / "requirements-audit.txt").read_text()
    pins = re.findall(r"^[a-z].*?(?=^[a-z]|\Z)", text, re.DOTALL | re.MULTILINE)
    assert {"cyclonedx-bom", "pip-audit"} <= {pin.partition("==")[0] for pin in pins}
    assert all("==" in pin and "--hash=sha256:" in pin for pin in pins)
    assert "://" not in text


def test_make_audits_all_pinned_packages() -> None:
    """docker/requirements-*.txt have the versions of requirements.txt (tests/chart)."""
    makefile = (ROOT / "Makefile").read_text()
    (files,) = re.findall(r"\.ci/audit\.py \S+ (.*)", makefile)
    assert files.split() == ["requirements.txt", "requirements-audit.txt"]
