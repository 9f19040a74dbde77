"""Ollama's own client against `llmgw up` with a real engine and a real model."""

import json
from collections.abc import Iterator

import ollama
import pytest
from cluster import EMBEDDER, MODEL, TOOLED, Up
from programs import needs_programs

pytestmark = [needs_programs, pytest.mark.timeout(400)]

QUESTION = [{"role": "user", "content": "Say hello."}]
OPTIONS = {"num_predict": 8, "temperature": 0}


@pytest.fixture
def client(up: Up) -> Iterator[ollama.Client]:
    with connect(up, up.key) as client:
        yield client


def connect(up: Up, key: str) -> ollama.Client:
    return ollama.Client(host=up.url, headers={"Authorization": f"Bearer {key}"}, timeout=120)


def test_a_chat_comes_whole_and_in_lines(client: ollama.Client) -> None:
    whole = client.chat(model=MODEL, messages=QUESTION, options=OPTIONS)
    assert whole.message.content
    assert (whole.model, whole.done, whole.done_reason) == (MODEL, True, "length")
    assert (whole.prompt_eval_count or 0) > 0
    assert whole.eval_count == 8
    assert (whole.total_duration or 0) > 0
    pieces = list(client.chat(model=MODEL, messages=QUESTION, options=OPTIONS, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1].eval_count == whole.eval_count


def test_a_prompt_is_answered_and_a_raw_one_goes_on(client: ollama.Client) -> None:
    whole = client.generate(model=MODEL, prompt="Say hello.", system="Be kind.", options=OPTIONS)
    assert whole.response
    raw = list(client.generate(model=MODEL, prompt="Once upon a", raw=True, options=OPTIONS, stream=True))
    assert "".join(piece.response or "" for piece in raw)
    assert raw[-1].done


async def test_the_awaiting_client_is_served_too(up: Up) -> None:
    headers = {"Authorization": f"Bearer {up.key}"}
    async with ollama.AsyncClient(host=up.url, headers=headers, timeout=120) as client:
        answer = await client.chat(model=MODEL, messages=QUESTION, options=OPTIONS)
    assert answer.message.content


def test_an_answer_follows_a_schema(client: ollama.Client) -> None:
    schema = {"type": "object", "properties": {"blue": {"type": "boolean"}}, "required": ["blue"]}
    answer = client.chat(
        model=MODEL,
        messages=[{"role": "user", "content": "Is the sky blue?"}],
        format=schema,
        options={"num_predict": 64, "temperature": 0},
    )
    assert isinstance(json.loads(answer.message.content or "")["blue"], bool)


def test_tools_and_their_answers_reach_the_model(client: ollama.Client) -> None:
    def weather(city: str) -> str:
        """
        The weather of a city.

        Args:
          city: where
        """
        return f"It is sunny in {city}."

    asked: list[dict[str, object]] = [{"role": "user", "content": "Weather in Bern?"}]
    told: list[dict[str, object]] = [
        *asked,
        {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Bern"}}}]},
        {"role": "tool", "tool_name": "weather", "content": weather("Bern")},
    ]
    counts = []
    for messages, tools in ((asked, []), (asked, [weather]), (told, [weather])):
        answer = client.chat(model=TOOLED, messages=messages, tools=tools, options={"num_predict": 1})
        counts.append(answer.prompt_eval_count or 0)
    assert 0 < counts[0] < counts[1] < counts[2]


def test_texts_become_vectors(client: ollama.Client) -> None:
    answer = client.embed(model=EMBEDDER, input=["a red apple", "a green pear"])
    assert answer.model == EMBEDDER
    first, second = answer.embeddings
    assert len(first) == len(second) > 100
    assert client.embeddings(model=EMBEDDER, prompt="a red apple").embedding == pytest.approx(first, abs=1e-4)


def test_the_models_are_listed_and_shown(client: ollama.Client) -> None:
    assert MODEL in [model.model for model in client.list().models]
    assert MODEL in [model.model for model in client.ps().models]
    assert client.show(MODEL).modified_at is not None


def test_refusals_are_the_clients_own_exception(up: Up, client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError) as unknown:
        client.chat(model="nobody", messages=QUESTION)
    assert unknown.value.status_code == 404
    assert "nobody" in unknown.value.error
    with connect(up, "sk-wrong") as stranger, pytest.raises(ollama.ResponseError) as refused:
        list(stranger.chat(model=MODEL, messages=QUESTION, stream=True))
    assert refused.value.status_code == 401
