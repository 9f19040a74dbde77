"""What the tests stand on: a small admin API that answers as a control plane does, and one that never answers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import llmgw
import pytest
from cluster import Up
from programs import PORTS, Program

TOKEN = "secret-0123456789"  # noqa: S105 - of the small admin API below
NODE = "node-0197c2a4f0e17b6c9a3d5e8f10213243"
REPLICA = "r-0197c2a4f0e17b6c9a3d5e8f10213244"

Json = dict[str, Any]

LOG: Json = {"replica": REPLICA, "hostname": "large", "cursor": 25, "skipped": 0, "lines": ["loading", "ready"]}


class AdminApi(ThreadingHTTPServer):
    """One node, one declared model with a replica, and what is added."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.models: dict[str, Json] = {"tiny": model("tiny", "declared")}
        self.retried: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: AdminApi

    def do_GET(self) -> None:
        self.route({"summary": summary, "nodes": nodes, "models": models, "replicas": replicas})

    def do_POST(self) -> None:
        self.route({"models": add})

    def do_DELETE(self) -> None:
        self.route({})

    def route(self, routes: dict[str, Callable[[Handler, Json], object]]) -> None:
        url = urlsplit(self.path)
        query: Json = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = [unquote(part) for part in url.path.removeprefix("/api/v1/").split("/")]
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        query["body"] = json.loads(body) if body else None
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            self.refuse(401, "invalid_api_key", "the admin token is not right", "see the file admin-token")
        elif self.command == "GET" and parts == ["explain-placement"]:
            self.answer(explain(self, query))
        elif self.command == "GET" and parts[0] == "replicas" and parts[-1] == "log":
            self.log(parts[1], query)
        elif self.command == "GET" and parts == ["usage"]:
            self.answer([USAGE])
        elif self.command == "DELETE" and parts[0] == "models":
            self.remove(parts[1])
        elif self.command == "POST" and parts[-1] == "retry":
            self.server.retried.append(parts[1])
            self.answer({"retried": parts[1]})
        elif parts[0] in routes:
            self.answer(routes[parts[0]](self, query))
        else:
            self.refuse(404, "unknown_url", f"there is no {url.path}", None)

    def log(self, replica: str, query: Json) -> None:
        if replica != REPLICA:
            self.refuse(404, "not_found", f"there is no log of {replica}", None)
        elif query.get("after") == "25":
            end = {"reason": "failed", "text": "failed: llamacpp exited with 3"}
            self.answer(LOG | {"cursor": 39, "lines": ["out of memory"], "end": end})
        else:
            self.answer(LOG | {"lines": LOG["lines"][-int(query["lines"]) :]})

    def remove(self, name: str) -> None:
        if name not in self.server.models:
            self.refuse(404, "not_found", f"there is no model {name}", "`llmgw ctl models` lists those there are")
        elif self.server.models[name]["origin"] == "declared":
            self.refuse(409, "conflict", f"{name} is declared in the settings", "take it out there")
        else:
            del self.server.models[name]
            self.answer({"removed": name})

    def answer(self, data: object, status: int = 200) -> None:
        if data is None:
            return
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, code: str, error: str, hint: str | None) -> None:
        body = {"error": error, "code": code}
        self.answer(body | ({"hint": hint} if hint else {}), status)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class says so
        """Says nothing: the tests look at what the client says."""


@pytest.fixture
def admin() -> Iterator[AdminApi]:
    server = AdminApi()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(admin: AdminApi) -> llmgw.Client:
    return llmgw.Client(admin.url, TOKEN)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def fleet() -> Json:
    """Two nodes with 16 and 8 GiB for models; the larger one has 6 GiB in use."""
    engines = {"llamacpp": {"state": "installed", "version": "1", "variant": "wheel"}}
    running = {"id": REPLICA, "model": "tiny", "memory": "6GiB"}
    return {
        "nodes": [
            {
                "id": NODE,
                "hostname": "large",
                "memory_allocatable": "16GiB",
                "disk_free": "1TB",
                "engines": engines,
                "replicas": [running],
            },
            {
                "id": NODE[:-1] + "9",
                "hostname": "small",
                "memory_allocatable": "8GiB",
                "disk_free": "1TB",
                "engines": engines,
            },
        ]
    }


def wanted(name: str, memory: str, replicas: int = 1) -> Json:
    """One model from a file that is already on the nodes."""
    profiles = [{"memory": memory}]
    return {"models": [{"name": name, "source": "file:/models/a.gguf", "replicas": replicas, "profiles": profiles}]}


def python(script: str, *arguments: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a script in a fresh interpreter and gives back how it ended."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=limit, check=False
    )


def summary(_: Handler, __: Json) -> Json:
    return {
        "version": "0.1.0",
        "leading": True,
        "epoch": 3,
        "store": "sqlite",
        "uptime_seconds": 12,
        "nodes_ready": 1,
        "nodes_total": 2,
        "models_satisfied": 1,
        "models_total": 1,
        "replicas_ready": 1,
        "replicas_total": 1,
        "requests": 7,
        "attention": ["node small is lost"],
    }


def nodes(_: Handler, __: Json) -> list[Json]:
    node = {
        "id": NODE,
        "hostname": "large",
        "state": "ready",
        "probed": True,
        "labels": {"rack": "a1"},
        "os": {"id": "debian", "version": "12"},
        "arch": "x86_64",
        "cpu_cores": 2,
        "cpu_features": ["avx2"],
        "unhealthy_gpus": [{"index": 3, "class": "H200", "fault": "it has fallen off the bus"}],
        "fabrics": [{"kind": "infiniband", "name": "infiniband", "port": "mlx5_0/1", "gbps": 400, "up": True}],
        "memory_total": 17179869184,
        "memory_gb": 16,
        "memory_reserved": 734003200,
        "provision": [
            {"engine": "llamacpp", "state": {"state": "installing", "step": "downloading", "percent": 43}},
        ],
        "warnings": [{"code": "no_avx2", "text": "slow"}],
        "last_seen_ago": 1,
        "agent_version": "0.1.0",
        "replicas": 1,
    }
    return [node]


def models(handler: Handler, _: Json) -> list[Json]:
    return [handler.server.models[name] for name in sorted(handler.server.models)]


def replicas(_: Handler, query: Json) -> list[Json]:
    replica = {
        "id": REPLICA,
        "model": "tiny",
        "profile": "default",
        "stale": False,
        "state": "fetching",
        "node": NODE,
        "hostname": "large",
        "age_seconds": 4,
        "in_flight": 0,
        "fetch": {"source": "https://host/x.gguf", "bytes_done": 10, "bytes_total": 100},
    }
    return [replica] if query.get("model", "tiny") == "tiny" else []


def explain(handler: Handler, query: Json) -> Json | None:
    name = query["model"]
    if name not in handler.server.models:
        handler.refuse(404, "not_found", f"there is no model {name}", "`llmgw ctl models` lists those there are")
        return None
    reason = {
        "check": "memory",
        "need": {"bytes": 400_000_000_000},
        "have": {"bytes": 16_000_000_000},
        "short_by": 384_000_000_000,
        "detail": "not enough memory",
    }
    rejection = {"node": NODE, "hostname": "large", "profile": "default", "reasons": [reason]}
    report = {
        "model": name,
        "nodes": 1,
        "profiles": 1,
        "rejections": [rejection],
        "summary": [{"check": "memory", "nodes": 1}],
        "nearest": rejection,
        "remedies": [{"kind": "disk", "node": NODE, "hostname": "large", "free": 384_000_000_000}],
    }
    return {"model": name, "placed": False, "replicas": [], "report": report, "headline": f"{name} is not placed"}


def add(handler: Handler, query: Json) -> Json | None:
    name = query["body"]["name"]
    if name in handler.server.models:
        handler.refuse(409, "conflict", f"{name} is already a model", "choose another name")
        return None
    handler.server.models[name] = model(name, "added")
    return {"added": name}


def model(name: str, origin: str) -> Json:
    profile = {"name": "default", "engine": "llamacpp", "memory": 734003200, "context": 4096, "parallel": 4}
    return {
        "name": name,
        "description": "",
        "aliases": [],
        "fallbacks": ["spare"],
        "source": ["file:/models/a.gguf"],
        "origin": origin,
        "desired": 1,
        "ready_replicas": 1,
        "total_replicas": 1,
        "profiles": [profile],
        "parked": False,
        "failures": 0,
    }


USAGE = {
    "model": "tiny",
    "key": "key-0197c2a4f0e17b6c9a3d5e8f10213245",
    "requests": 3,
    "errors": 1,
    "prompt_tokens": 30,
    "completion_tokens": 12,
}


class Server:
    """A control plane that runs: where its admin API is, and its token."""

    def __init__(self, data: Path) -> None:
        self.program = Program("llmgw-server", "--data-dir", str(data), "--cluster-listen", "127.0.0.1:0", *PORTS)
        self.token_file = data / "admin.token"

    @property
    def url(self) -> str:
        return self.program.wait_for(r"admin API on (http://\S+)", 60)

    def client(self) -> llmgw.Client:
        return llmgw.Client(self.url, token_file=self.token_file)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server") / "data")
    try:
        yield server
    finally:
        server.program.stop()


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One cluster for the clients of every API: to start it takes the longest."""
    up = Up(tmp_path_factory.mktemp("up"))
    try:
        up.add_models()
        yield up
    finally:
        up.program.stop()
