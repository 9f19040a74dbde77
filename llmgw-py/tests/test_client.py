"""The client against a small admin API, blocking and awaited."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import llmgw
import pytest
from conftest import NODE, REPLICA, TOKEN, AdminApi, wanted

DEFINITION = wanted("new", "1GiB")["models"][0]

Question = Callable[[llmgw.Client], object]


def test_the_summary_and_the_nodes_are_shown(client: llmgw.Client) -> None:
    summary = client.summary()
    assert (summary.leading, summary.epoch, summary.requests) == (True, 3, 7)
    assert summary.attention == ("node small is lost",)
    (node,) = client.nodes()
    assert (node.id, node.hostname, node.state, node.labels) == (NODE, "large", "ready", {"rack": "a1"})
    assert node.os is not None
    assert (node.os.id, node.os.version) == ("debian", "12")
    assert (node.cpu_features, node.memory_total) == (("avx2",), 16 << 30)
    assert (node.gpu_total, node.disk_free) == (None, None), "what is not known is None"
    assert (node.memory_gb, node.gpu_free, node.mgmt_addr) == (16, None, None)
    assert node.unhealthy_gpus is not None
    assert [(gpu.index, gpu.fault) for gpu in node.unhealthy_gpus] == [(3, "it has fallen off the bus")]
    assert node.fabrics is not None
    assert [(port.name, port.gbps, port.up) for port in node.fabrics] == [("infiniband", 400, True)]
    (engine,) = node.provision
    assert (engine.engine, engine.state, engine.choice) == ("llamacpp", "installing", None)
    assert engine.description == "installing: downloading (43 %)"
    assert [warning.code for warning in node.warnings] == ["no_avx2"]
    assert "gpu_total" not in node.to_dict()
    assert repr(node).startswith(f"Node(id='{NODE}', hostname='large', state='ready', ")


def test_models_replicas_and_usage_are_shown(client: llmgw.Client) -> None:
    (model,) = client.models()
    assert (model.name, model.origin, model.desired, model.unplaceable) == ("tiny", "declared", 1, None)
    assert (model.aliases, model.fallbacks) == ((), ("spare",))
    assert [(profile.name, profile.context) for profile in model.profiles] == [("default", 4096)]
    (replica,) = client.replicas()
    assert (replica.id, replica.state, replica.endpoint) == (REPLICA, "fetching", None)
    assert replica.fetch is not None
    assert (replica.fetch.source, replica.fetch.bytes_done) == ("https://host/x.gguf", 10)
    assert client.replicas("tiny") == [replica]
    assert client.replicas(model="other") == []
    (usage,) = client.usage()
    assert (usage.model, usage.requests, usage.prompt_tokens) == ("tiny", 3, 30)
    assert usage.to_dict()["completion_tokens"] == 12


async def test_a_log_is_read_part_after_part(client: llmgw.Client) -> None:
    part = client.log(REPLICA, lines=1)
    assert (part["lines"], part["hostname"], part.get("end")) == (["ready"], "large", None)
    assert await client.log_async(REPLICA) == client.log(REPLICA)
    part = await client.log_async(REPLICA, after=part["cursor"], wait="1s")
    assert (part["lines"], part["end"]["reason"]) == (["out of memory"], "failed")
    with pytest.raises(llmgw.NotFoundError, match="no log"):
        client.log(NODE.replace("node-", "r-"))
    with pytest.raises(llmgw.ConfigError, match=r"^replica: "):
        client.log("tiny")
    with pytest.raises(llmgw.ConfigError, match=r"^wait: "):
        client.log(REPLICA, wait="soon")


def test_an_explanation_says_what_is_missing(client: llmgw.Client) -> None:
    explanation = client.explain("tiny")
    assert (explanation.placed, explanation.replicas) == (False, ())
    (rejection,) = explanation.report.rejections
    assert rejection == explanation.report.nearest
    (reason,) = rejection.reasons
    assert (reason.check, reason.need, reason.short_by) == ("memory", 400_000_000_000, 384_000_000_000)
    (remedy,) = explanation.report.remedies
    assert (remedy.kind, remedy.when, remedy.places) == ("disk", "now", None)
    assert str(remedy) == "free 357.6 GiB of disk on large"
    assert "large" in str(explanation)


def test_a_model_is_added_and_removed(client: llmgw.Client) -> None:
    assert client.add(DEFINITION) == "new"
    assert [model.name for model in client.models()] == ["new", "tiny"]
    with pytest.raises(llmgw.ConflictError, match="new is already a model"):
        client.add(DEFINITION)
    client.remove("new")
    assert [model.name for model in client.models()] == ["tiny"]


async def test_every_operation_can_be_awaited(client: llmgw.Client, admin: AdminApi) -> None:
    assert await client.add_async(DEFINITION) == "new"
    assert await client.summary_async() == client.summary()
    assert await client.nodes_async() == client.nodes()
    assert await client.models_async() == client.models()
    assert await client.replicas_async() == client.replicas()
    assert await client.replicas_async("other") == []
    assert await client.explain_async("new") == client.explain("new")
    assert await client.usage_async() == client.usage()
    await client.retry_async("new")
    client.retry("org/new:7b")
    assert admin.retried == ["new", "org/new:7b"]
    await client.remove_async("new")
    with pytest.raises(llmgw.NotFoundError):
        await client.remove_async("new")


async def test_many_calls_are_under_way_at_the_same_time(client: llmgw.Client) -> None:
    answers = await asyncio.gather(*(client.nodes_async() for _ in range(50)))
    assert answers == [client.nodes()] * 50


async def test_a_cancelled_call_is_dropped(silent: str) -> None:
    client = llmgw.Client(silent, TOKEN)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(client.nodes_async(), 0.05)


def test_what_is_not_there_is_a_lookup_error(client: llmgw.Client) -> None:
    with pytest.raises(llmgw.NotFoundError) as caught:
        client.explain("nothing")
    assert isinstance(caught.value, LookupError)
    assert caught.value.code == "not_found"
    assert caught.value.message == "there is no model nothing"
    assert str(caught.value) == "there is no model nothing\nhint: `llmgw ctl models` lists those there are"


def test_a_wrong_token_is_an_access_error(admin: AdminApi) -> None:
    with pytest.raises(llmgw.AccessError) as caught:
        llmgw.Client(admin.url, "wrong").nodes()
    assert (caught.value.code, caught.value.hint) == ("invalid_api_key", "see the file admin-token")
    for absent in (None, "", "two words"):
        with pytest.raises(llmgw.AccessError) as caught:
            llmgw.Client(admin.url, absent)
        assert caught.value.hint is not None


def test_the_token_can_be_read_from_a_file(admin: AdminApi, tmp_path: Path) -> None:
    file = tmp_path / "admin.token"
    file.write_text(TOKEN + "\n")
    for path in (file, str(file)):
        assert llmgw.Client(admin.url, token_file=path).nodes()
    with pytest.raises(llmgw.ConfigError, match=r"^token_file: token is given as well"):
        llmgw.Client(admin.url, TOKEN, token_file=file)
    with pytest.raises(llmgw.ConfigError, match=r"^token_file: reading .*/absent: No such file"):
        llmgw.Client(admin.url, token_file=tmp_path / "absent")


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.add({**DEFINITION, "replicas": -1}),
        lambda client: client.add({**DEFINITION, "replica": 1}),
        lambda client: client.explain("a b"),
        lambda client: client.replicas(""),
        lambda client: client.remove("a" * 129),
    ],
)
def test_bad_input_is_a_value_error_and_is_not_sent(ask: Question) -> None:
    client = llmgw.Client("http://127.0.0.1:1", TOKEN)
    with pytest.raises(llmgw.ConfigError) as caught:
        ask(client)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).split(":")[0] in {"definition.replicas", "definition.replica", "model"}


def test_a_bad_address_is_a_value_error_and_is_not_repeated() -> None:
    with pytest.raises(llmgw.ConfigError) as caught:
        llmgw.Client("http://operator:hunter2@127.0.0.1", TOKEN)
    assert "hunter2" not in str(caught.value)


def test_nobody_there_can_be_tried_again_and_says_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(llmgw.UnavailableError) as caught:
        llmgw.Client(url, TOKEN).summary()
    assert (caught.value.code, caught.value.retryable) == ("unavailable", True)
    assert caught.value.message == f"no control plane answers at {url}"
    assert caught.value.hint == "start one with `llmgw up`"


def test_the_token_is_not_shown() -> None:
    client = llmgw.Client("http://127.0.0.1:1", TOKEN)
    assert repr(client) == 'Client("http://127.0.0.1:1")'
    assert client.url == "http://127.0.0.1:1"


def test_calls_without_an_event_loop_say_so(client: llmgw.Client) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        client.nodes_async()
