"""Known weaknesses of the packages in ``requirements-ci.txt``, by pip-audit.

    python scripts/audit.py

pip-audit is installed into an environment of its own, which is thrown away afterwards. It looks every locked package up
in the vulnerability service behind PyPI, which mirrors of the index do not have: what could not be looked up is counted
and is not called clean. The exit code is 1 where a weakness is known, else 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[1] / "requirements-ci.txt"
OPTIONS = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json", "-r", str(LOCK))
PATIENCE = 180  # seconds for each of the two commands


def told(report: dict[str, Any]) -> tuple[list[str], int]:
    """What a report of pip-audit says in lines, and the exit code."""
    packages = report["dependencies"]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    lines = [
        f"{package['name']} {package['version']}: {weakness['id']}"
        + (f", mended in {', '.join(weakness['fix_versions'])}" if weakness["fix_versions"] else "")
        for package in packages
        for weakness in package.get("vulns", ())
    ]
    code = 1 if lines else 0
    lines.append(f"{len(packages) - len(skipped)} of {len(packages)} packages looked up, {len(lines)} weaknesses known")
    if skipped:
        lines.append(f"not looked up, so nothing is known of them: {', '.join(skipped)}")
    return lines, code


def audited() -> dict[str, Any] | str:
    """The report of pip-audit, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / ("Scripts" if sys.platform == "win32" else "bin") / "python")
        try:
            _run(python, "pip", "install", "--quiet", "pip-audit").check_returncode()
            done = _run(python, "pip_audit", *OPTIONS)
            report: dict[str, Any] = json.loads(done.stdout)
        except subprocess.CalledProcessError as error:
            return f"pip-audit cannot be installed: {error.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired as error:
            return f"{error.cmd[2]} took longer than {PATIENCE} seconds"
        except ValueError:
            return f"pip-audit failed: {done.stderr.strip()[-300:]}"
        return report


def _run(python: str, module: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", module, *options]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


def main() -> int:
    """Print what is known; the exit code."""
    report = audited()
    if isinstance(report, str):
        print(f"nothing was looked up: {report}")
        return 0
    lines, code = told(report)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
