"""The client against a real control plane, without a node."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import llmgw
import pytest
from conftest import wanted

BINARIES = os.environ.get("LLMGW_BIN_DIR")

pytestmark = pytest.mark.skipif(BINARIES is None, reason="LLMGW_BIN_DIR names no folder with a built llmgw-server")

DEFINITION = wanted("org/new:7b", "400GB")["models"][0]


class Server:
    """A control plane that runs: where its admin API is, and its data directory."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        free = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0"]
        command = [str(Path(str(BINARIES)) / "llmgw-server"), "--data-dir", str(self.data), *free]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self.url: str | None = None
        self.told = threading.Event()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        for line in self.process.stderr or ():
            self.said.append(line)
            if found := re.search(r"admin API on (http://\S+)", line):
                self.url = found[1]
                self.told.set()
        self.told.set()

    def client(self) -> llmgw.Client:
        assert self.told.wait(60)
        assert self.url is not None, "".join(self.said)
        return llmgw.Client(self.url, token_file=self.data / "admin.token")

    def stop(self) -> None:
        self.process.terminate()
        try:
            assert self.process.wait(60) == 0, "".join(self.said)
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.join()
            if self.process.stderr is not None:
                self.process.stderr.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        yield server
    finally:
        server.stop()


def test_an_empty_cluster_says_so(server: Server) -> None:
    client = server.client()
    summary = client.summary()
    assert (summary.nodes_total, summary.models_total) == (0, 0)
    assert client.nodes() == []
    assert client.replicas() == []
    assert client.usage() == []


async def test_a_model_is_added_explained_and_removed(server: Server) -> None:
    client = server.client()
    assert await client.add_async(DEFINITION) == "org/new:7b"
    (model,) = await client.models_async()
    assert (model.name, model.origin, model.desired, model.ready_replicas) == ("org/new:7b", "added", 1, 0)
    assert model.profiles[0].memory == 400_000_000_000
    explanation = client.explain("org/new:7b")
    assert not explanation.placed
    assert "no node has joined yet" in str(explanation)
    with pytest.raises(llmgw.ConflictError):
        client.add(DEFINITION)
    client.remove("org/new:7b")
    assert client.models() == []
    with pytest.raises(llmgw.NotFoundError, match="there is no model org/new:7b"):
        client.remove("org/new:7b")


def test_what_the_server_refuses_comes_through_whole(server: Server) -> None:
    client = server.client()
    with pytest.raises(llmgw.ConfigError, match="sha256") as caught:
        client.add(DEFINITION | {"source": "hf:owner/repo/x.gguf"})
    assert caught.value.hint is not None
    assert server.url is not None
    with pytest.raises(llmgw.AccessError):
        llmgw.Client(server.url, "wrong").summary()
