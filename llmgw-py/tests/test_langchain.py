"""LangChain's OpenAI classes against `llmgw up` with a real engine and a real model."""

import pytest
from cluster import EMBEDDER, MODEL, TOOLED, Up
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from programs import needs_programs
from pydantic import BaseModel, SecretStr

pytestmark = [needs_programs, pytest.mark.timeout(400)]


class Sky(BaseModel):
    """What the sky is like."""

    blue: bool


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


def chat(up: Up, model: str = MODEL, most: int = 8) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{up.url}/v1",
        api_key=SecretStr(up.key),
        model=model,
        max_completion_tokens=most,
        temperature=0,
        max_retries=0,
        timeout=120,
    )


def test_an_answer_comes_whole_and_in_pieces(up: Up) -> None:
    whole = chat(up).invoke("Say hello.")
    pieces = list(chat(up).stream("Say hello."))
    assert whole.text
    assert "".join(piece.text for piece in pieces) == whole.text
    assert whole.response_metadata["model_name"] == MODEL
    usage = whole.usage_metadata
    assert usage is not None
    assert 0 < usage["output_tokens"] <= 8


def test_an_answer_follows_a_schema(up: Up) -> None:
    structured = chat(up, most=64).with_structured_output(Sky, method="json_schema")
    assert isinstance(structured.invoke("Is the sky blue?"), Sky)


def test_tools_reach_the_model(up: Up) -> None:
    model = chat(up, TOOLED, most=1)
    plain, tooled = (asked.invoke("Weather in Bern?") for asked in (model, model.bind_tools([weather])))
    assert plain.usage_metadata is not None
    assert tooled.usage_metadata is not None
    assert plain.usage_metadata["input_tokens"] < tooled.usage_metadata["input_tokens"]


def test_texts_become_vectors(up: Up) -> None:
    embeddings = OpenAIEmbeddings(
        base_url=f"{up.url}/v1",
        api_key=SecretStr(up.key),
        model=EMBEDDER,
        # Else it sends tokens of OpenAI's own tokenizer, which it fetches.
        check_embedding_ctx_length=False,
        max_retries=0,
        timeout=120,
    )
    apple, pear = embeddings.embed_documents(["a red apple", "a green pear"])
    assert len(apple) == len(pear) > 100
    assert embeddings.embed_query("a red apple") == pytest.approx(apple, abs=1e-4)
