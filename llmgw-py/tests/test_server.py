"""The client against a real control plane, without a node."""

import llmgw
import pytest
from conftest import Server, wanted
from programs import needs_programs

pytestmark = needs_programs

DEFINITION = wanted("org/new:7b", "400GB")["models"][0]


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
    assert "there is no node" in str(explanation)
    snapshot = client.snapshot()
    assert snapshot == await client.snapshot_async()
    elsewhere = llmgw.plan(snapshot["fleet"], {"models": snapshot["models"]})
    assert elsewhere.reports[0].missing == 1
    with pytest.raises(llmgw.ConflictError):
        client.add(DEFINITION)
    client.remove("org/new:7b")
    assert client.models() == []
    with pytest.raises(llmgw.NotFoundError, match="there is no model org/new:7b"):
        client.remove("org/new:7b")


def test_what_the_server_refuses_comes_through_whole(server: Server) -> None:
    client = server.client()
    with pytest.raises(llmgw.ConfigError, match="sha256") as caught:
        client.add(DEFINITION | {"source": "https://weights.example/x.gguf"})
    assert caught.value.hint is not None
    with pytest.raises(llmgw.AccessError):
        llmgw.Client(server.url, "wrong").summary()
