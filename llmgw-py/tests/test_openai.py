"""The official OpenAI client against `llmgw up` with a real engine and a real model."""

import time
from collections.abc import Iterator
from pathlib import Path

import llmgw
import openai
import pytest
from conftest import wanted
from openai.types.chat import ChatCompletionMessageParam
from programs import PORTS, Program, needs_programs

# The first test waits until an engine was installed and a model was fetched, too.
pytestmark = [needs_programs, pytest.mark.timeout(400)]

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]


class Up:
    """A cluster of one machine that serves the starter model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        flags = ["--data-dir", str(folder / "data"), "--api-key-file", str(folder / "key")]
        self.program = Program("llmgw", "up", *flags, *PORTS)

    def openai(self, api_key: str | None = None) -> openai.OpenAI:
        base = self.program.wait_for(r"^curl (http://\S+/v1)/", 300)
        key = api_key or (self.folder / "key").read_text().strip()
        return openai.OpenAI(base_url=base, api_key=key, max_retries=0, timeout=60)

    def admin(self) -> llmgw.Client:
        url = self.program.wait_for(r"admin API on (http://[0-9.]+:[0-9]+)", 300)
        return llmgw.Client(url, token_file=self.folder / "data" / "admin.token")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("up"))
    try:
        yield up
    finally:
        up.program.stop()


@pytest.fixture
def client(up: Up) -> Iterator[openai.OpenAI]:
    with up.openai() as client:
        yield client


@pytest.fixture
def model(client: openai.OpenAI) -> str:
    (model,) = client.models.list()
    return model.id


def test_an_answer_comes_whole(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=8, temperature=0)
    assert answer.model == model
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_an_answer_comes_in_pieces_and_is_the_same(client: openai.OpenAI, model: str) -> None:
    whole = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=8, temperature=0)
    with client.chat.completions.create(
        model=model,
        messages=QUESTION,
        max_tokens=8,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(piece for piece in pieces if piece) == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert {chunk.model for chunk in chunks} == {model}


def test_completions_come_both_ways(client: openai.OpenAI, model: str) -> None:
    whole = client.completions.create(model=model, prompt="Once upon a", max_tokens=6, temperature=0)
    with client.completions.create(
        model=model, prompt="Once upon a", max_tokens=6, temperature=0, stream=True
    ) as stream:
        pieces = [chunk.choices[0].text for chunk in stream if chunk.choices]
    assert whole.choices[0].text
    assert "".join(pieces) == whole.choices[0].text


async def test_the_awaiting_client_is_served_too(client: openai.OpenAI, model: str) -> None:
    async with openai.AsyncOpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=0) as awaiting:
        stream = await awaiting.chat.completions.create(model=model, messages=QUESTION, max_tokens=4, stream=True)
        async with stream:
            chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "length"


def test_refusals_are_the_clients_own_exceptions(up: Up, client: openai.OpenAI, model: str) -> None:
    with up.openai("sk-wrong") as stranger, pytest.raises(openai.AuthenticationError) as refused:
        stranger.models.list()
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody", messages=QUESTION)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=model, messages=QUESTION, max_tokens=4, extra_body={"messages": "x"})


def test_a_model_that_cannot_fit_is_refused_at_once_with_the_reason(up: Up, client: openai.OpenAI) -> None:
    admin = up.admin()
    admin.add(wanted("giant", "400GB")["models"][0])
    try:
        with pytest.raises(openai.APIStatusError) as refused:
            client.with_options(timeout=10).chat.completions.create(model="giant", messages=QUESTION)
        assert refused.value.code == "model_unplaceable"
        assert "memory" in str(refused.value)
        explanation = admin.explain("giant")
        (rejection,) = explanation.report.rejections
        reason = next(reason for reason in rejection.reasons if reason.check == "memory")
        assert reason.need == 400_000_000_000
        assert isinstance(reason.have, int)
        assert reason.short_by == 400_000_000_000 - reason.have
    finally:
        admin.remove("giant")


def test_the_cluster_tells_what_it_runs_and_what_was_used(up: Up, client: openai.OpenAI, model: str) -> None:
    admin = up.admin()
    (node,) = admin.nodes()
    assert (node.state, node.probed, node.provision[0].state) == ("ready", True, "installed")
    (replica,) = admin.replicas(model)
    assert (replica.state, replica.node) == ("ready", node.id)
    answer = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=4)
    assert answer.usage is not None
    # A call is in the accounts within a second; a loaded machine gets ten.
    deadline = time.monotonic() + 10
    while not (used := [usage for usage in admin.usage() if usage.model == model]):
        assert time.monotonic() < deadline
    assert used[0].completion_tokens >= answer.usage.completion_tokens
    assert admin.summary().requests > 0
