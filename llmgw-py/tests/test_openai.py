"""The official OpenAI client against `llmgw up` with a real engine and a real model."""

import base64
import json
import struct
import time
from collections.abc import Iterator

import openai
import pytest
from cluster import EMBEDDER, MODEL, RERANKER, TOOLED, Up
from conftest import wanted
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from openai.types.responses import FunctionToolParam
from programs import needs_programs

# The first test waits until an engine was installed and a model was fetched, too.
pytestmark = [needs_programs, pytest.mark.timeout(400)]

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]


@pytest.fixture
def client(up: Up) -> Iterator[openai.OpenAI]:
    with up.openai() as client:
        yield client


@pytest.fixture
def model(client: openai.OpenAI) -> str:
    assert MODEL in [model.id for model in client.models.list()]
    return MODEL


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


WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_an_answer_follows_a_json_schema(client: openai.OpenAI, model: str) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"blue": {"type": "boolean"}},
        "required": ["blue"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Is the sky blue?"}],
        max_tokens=64,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "sky", "strict": True, "schema": schema}},
    )
    assert isinstance(json.loads(answer.choices[0].message.content or "")["blue"], bool)


def test_tools_and_their_answers_reach_the_model(client: openai.OpenAI) -> None:
    tool: ChatCompletionFunctionToolParam = {
        "type": "function",
        "function": {"name": "weather", "description": "The weather of a city", "parameters": dict(WEATHER)},
    }
    asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Weather in Bern?"}]
    call: ChatCompletionMessageParam = {
        "role": "assistant",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
        ],
    }
    result: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": "call_1", "content": "It is sunny in Bern."}
    told = [*asked, call, result]
    tokens = []
    for messages, tools in ((asked, []), (asked, [tool]), (told, [tool])):
        answer = client.chat.completions.create(
            model=TOOLED, messages=messages, tools=tools or openai.omit, max_tokens=1, temperature=0
        )
        assert answer.usage is not None
        tokens.append(answer.usage.prompt_tokens)
    assert tokens[0] < tokens[1] < tokens[2]
    with client.chat.completions.create(
        model=TOOLED, messages=told, tools=[tool], max_tokens=2, temperature=0, stream=True
    ) as stream:
        assert [chunk.model for chunk in stream]


def test_a_response_comes_whole_and_in_events(client: openai.OpenAI, model: str) -> None:
    whole = client.responses.create(model=model, input="Say hello.", max_output_tokens=8, temperature=0)
    assert whole.model == model
    assert whole.output_text
    assert whole.usage is not None
    assert 0 < whole.usage.output_tokens <= 8
    with client.responses.create(
        model=model, input="Say hello.", max_output_tokens=8, temperature=0, stream=True
    ) as stream:
        events = list(stream)
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(pieces) > 1
    assert "".join(pieces) == whole.output_text
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    assert (last.response.model, last.response.usage) == (model, whole.usage)


def test_tools_reach_the_model_of_a_response(client: openai.OpenAI) -> None:
    tool: FunctionToolParam = {
        "type": "function",
        "name": "weather",
        "description": "The weather of a city",
        "parameters": dict(WEATHER),
        "strict": False,
    }
    tokens = []
    for tools in ([], [tool]):
        answer = client.responses.create(model=TOOLED, input="Weather?", tools=tools, max_output_tokens=1)
        assert answer.usage is not None
        tokens.append(answer.usage.input_tokens)
    assert tokens[0] < tokens[1]


def test_vectors_are_the_same_as_numbers_and_in_base64(client: openai.OpenAI) -> None:
    texts = ["a red apple", "a green pear"]
    asked = client.embeddings.create(model=EMBEDDER, input=texts)
    numbers = client.embeddings.create(model=EMBEDDER, input=texts, encoding_format="float")
    packed = client.embeddings.create(model=EMBEDDER, input=texts, encoding_format="base64")
    assert asked.model == EMBEDDER
    assert asked.usage.prompt_tokens == numbers.usage.prompt_tokens > 0
    for one, other, third in zip(asked.data, numbers.data, packed.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding)
        text = third.embedding
        # What the client asked for as text, some of its versions leave as it is.
        if isinstance(text, str):
            data = base64.b64decode(text)
            assert struct.unpack(f"<{len(data) // 4}f", data) == pytest.approx(other.embedding)
    assert asked.data[0].embedding != asked.data[1].embedding
    with pytest.raises(openai.APIStatusError) as refused:
        client.embeddings.create(model=MODEL, input=texts)
    assert "embeddings" in str(refused.value)


def test_documents_are_ranked(client: openai.OpenAI) -> None:
    body = {"model": RERANKER, "query": "fruit", "documents": ["an apple", "a car", "a pear"]}
    ranked = client.post("/rerank", cast_to=object, body=body)
    assert isinstance(ranked, dict)
    assert ranked["model"] == RERANKER
    assert sorted(result["index"] for result in ranked["results"]) == [0, 1, 2]


def test_a_client_that_leaves_ends_the_work(up: Up, client: openai.OpenAI, model: str) -> None:
    def used() -> int:
        return sum(usage.completion_tokens for usage in up.admin().usage() if usage.model == model)

    before = used()
    with client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        next(iter(stream))
    up.until_idle()
    deadline = time.monotonic() + 60
    while (tokens := used() - before) == 0:
        assert time.monotonic() < deadline
    assert tokens < 1500


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
