"""The stubs say what the compiled module has, no more and no less."""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import llmgw


def test_the_stubs_agree_with_the_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "llmgw"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_package_is_typed_and_its_wheel_is_for_every_later_python() -> None:
    package = Path(llmgw.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "_llmgw.pyi").exists()
    wheel = distribution("llmgw").read_text("WHEEL") or ""
    assert "Tag: cp310-abi3-" in wheel
