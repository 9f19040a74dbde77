"""The examples run as their readers would run them."""

import subprocess
import sys
from pathlib import Path

from conftest import TOKEN, AdminApi

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_plan_says_where_and_why_not() -> None:
    ended = run("plan.py")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("small goes to box\nbig is not placed: 1 node, 1 profile, none fits now.")


def test_the_client_lists_nodes_and_models(admin: AdminApi, tmp_path: Path) -> None:
    token_file = tmp_path / "admin.token"
    token_file.write_text(TOKEN)
    ended = run("client.py", admin.url, str(token_file))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "large: ready, replicas: 1\ntiny: 1 of 1 serve\n"
    ended = run("client.py", "http://127.0.0.1:1", str(token_file))
    assert ended.returncode == 1
    assert ended.stderr.endswith("hint: start one with `llmgw up`\n")


def test_every_example_has_a_test_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == ["client.py", "plan.py"]
