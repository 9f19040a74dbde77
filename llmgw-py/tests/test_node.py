"""The official clients for Node against `llmgw up` with a real engine and a real model."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cluster import EMBEDDER, MODEL, TOOLED, Up
from programs import needs_programs

pytestmark = [
    needs_programs,
    pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm here"),
    pytest.mark.timeout(400),
]

SCRIPT = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the clients at the versions of the lock file, and with the script."""
    folder = tmp_path_factory.mktemp("node")
    for file in SCRIPT.iterdir():
        shutil.copy(file, folder)
    npm = str(shutil.which("npm"))
    # Nothing of what is fetched is run but the clients.
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True, timeout=200)
    return folder


def run(client: str, folder: Path, up: Up) -> dict[str, Any]:
    env = {"LLMGW_URL": up.url, "LLMGW_KEY": up.key}
    models = {"LLMGW_MODEL": MODEL, "LLMGW_EMBEDDER": EMBEDDER, "LLMGW_TOOLED": TOOLED}
    node = str(shutil.which("node"))
    ran = subprocess.run(
        [node, "clients.mjs", client],
        cwd=folder,
        env=os.environ | env | models,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def check(told: dict[str, Any]) -> None:
    assert told["model"] == MODEL
    assert told["whole"]
    assert told["streamed"] == told["whole"]
    assert told["usage"][0] == told["usage"][1]
    assert 0 < told["usage"][0] <= 8
    assert told["tools"][0] < told["tools"][1]
    assert told["refused"] == {"name": "NotFoundError", "status": 404, "code": "model_not_found"}


def test_openais_client_is_served(installed: Path, up: Up) -> None:
    told = run("openai", installed, up)
    check(told)
    assert isinstance(told["structured"]["blue"], bool)
    numbers, vector = told["vectors"]
    assert len(vector) > 100
    assert vector == pytest.approx(numbers, abs=1e-6)
    assert told["response"]
    assert told["events"] == ["response.created", "response.completed"]
    up.until_idle()


def test_anthropics_client_is_served(installed: Path, up: Up) -> None:
    check(run("anthropic", installed, up))
    up.until_idle()
