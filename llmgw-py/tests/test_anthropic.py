"""The official Anthropic client against `llmgw up` with a real engine and a real model."""

from collections.abc import Iterator

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam
from cluster import MODEL, TOOLED, Up
from programs import needs_programs

pytestmark = [needs_programs, pytest.mark.timeout(400)]

# Not every model has it any more, so that it is no argument of the client's own.
GREEDY = {"temperature": 0}

QUESTION: list[MessageParam] = [{"role": "user", "content": "Say hello."}]

WEATHER: ToolParam = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def connect(up: Up, api_key: str | None = None) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=up.url, api_key=api_key or up.key, max_retries=0, timeout=120)


@pytest.fixture
def client(up: Up) -> Iterator[anthropic.Anthropic]:
    with connect(up) as client:
        yield client


def text(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message_comes_whole_and_in_events(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model=MODEL, messages=QUESTION, max_tokens=8, extra_body=GREEDY)
    assert (whole.model, whole.stop_reason) == (MODEL, "max_tokens")
    assert text(whole)
    assert 0 < whole.usage.output_tokens <= 8
    assert whole._request_id
    with client.messages.stream(model=MODEL, messages=QUESTION, max_tokens=8, extra_body=GREEDY) as stream:
        pieces = list(stream.text_stream)
        last = stream.get_final_message()
    assert len(pieces) > 1
    assert "".join(pieces) == text(whole)
    assert (last.model, last.usage.output_tokens) == (MODEL, whole.usage.output_tokens)


async def test_the_awaiting_client_is_served_too(up: Up) -> None:
    async with anthropic.AsyncAnthropic(base_url=up.url, api_key=up.key, max_retries=0) as client:
        stream = await client.messages.create(model=MODEL, messages=QUESTION, max_tokens=4, stream=True)
        async with stream:
            events = [event async for event in stream]
    assert (events[0].type, events[-1].type) == ("message_start", "message_stop")


def test_tokens_are_counted_and_tools_among_them(client: anthropic.Anthropic) -> None:
    plain = client.messages.count_tokens(model=TOOLED, messages=QUESTION)
    tooled = client.messages.count_tokens(model=TOOLED, messages=QUESTION, tools=[WEATHER])
    assert 0 < plain.input_tokens < tooled.input_tokens


def test_tools_and_their_answers_reach_the_model(client: anthropic.Anthropic) -> None:
    told: list[MessageParam] = [
        {"role": "user", "content": "Weather in Bern?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "It is sunny in Bern."}]},
    ]
    tokens = []
    for messages in (told[:1], told):
        answer = client.messages.create(model=TOOLED, messages=messages, tools=[WEATHER], max_tokens=1)
        usage = answer.usage
        tokens.append(usage.input_tokens + (usage.cache_read_input_tokens or 0))
    assert tokens[0] < tokens[1]


def test_refusals_are_the_clients_own_exceptions(up: Up, client: anthropic.Anthropic) -> None:
    with connect(up, "sk-wrong") as stranger, pytest.raises(anthropic.AuthenticationError) as refused:
        stranger.messages.create(model=MODEL, messages=QUESTION, max_tokens=1)
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(model="nobody", messages=QUESTION, max_tokens=1)
    assert isinstance(unknown.value.body, dict)
    assert unknown.value.body["error"]["code"] == "model_not_found"
    assert unknown.value.request_id
    with (
        pytest.raises(anthropic.NotFoundError),
        client.messages.stream(model="nobody", messages=QUESTION, max_tokens=1),
    ):
        pass


def test_a_client_that_leaves_ends_the_work(up: Up, client: anthropic.Anthropic) -> None:
    stream = client.messages.create(
        model=MODEL, messages=QUESTION, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    )
    with stream:
        next(iter(stream))
    up.until_idle()
