"""The admin API keeps what its own description says, whatever is sent to it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from conftest import Server
from programs import needs_programs

pytestmark = needs_programs

# Texts that no one could tell from right ones are refused all the same, such as a source that is none. And names may
# contain `/`, so that `models/a/scale` is, to the router, a name too, which may be deleted.
LEFT_OUT = "positive_data_acceptance,unsupported_method,allow_header_conformance"


def described(server: Server) -> dict[str, Any]:
    token = server.token_file.read_text().strip()
    request = urllib.request.Request(  # noqa: S310 - an address of our own program
        f"{server.url}/api/v1/openapi.json", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
        whole: dict[str, Any] = json.load(answer)
    return whole


def test_the_description_is_served_and_names_every_route(server: Server) -> None:
    url = server.url
    assert url.startswith("http://")
    whole = described(server)
    assert whole["openapi"] == "3.1.0"
    assert "/api/v1/models/{name}/scale" in whole["paths"]
    assert len(whole["paths"]) > 25


def test_what_is_sent_by_chance_is_answered_as_described(server: Server, tmp_path: Path) -> None:
    """Seeded, so that it sends the same at each run. Streams are left out: they do not end."""
    url = server.url
    token = server.token_file.read_text().strip()
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/v1/openapi.json", "--url", url),
        *("--header", f"Authorization: Bearer {token}", "--exclude-path-regex", "events$"),
        *("--checks", "all", "--exclude-checks", LEFT_OUT, "--phases", "coverage,fuzzing"),
        *("--seed", "20261130", "--max-examples", "10", "--generation-database", "none"),
        *("--request-timeout", "20", "--no-color"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout[-8_000:] + ran.stderr[-2_000:]
