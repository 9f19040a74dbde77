"""The tree of what can go wrong."""

import pickle

import llmgw
import pytest
from llmgw import exceptions

LEAVES = [getattr(exceptions, name) for name in exceptions.__all__]


@pytest.mark.parametrize("leaf", LEAVES)
def test_an_error_survives_pickling_with_all_it_says(leaf: type[llmgw.LlmgwError]) -> None:
    error = pickle.loads(pickle.dumps(leaf("no room", "queue_full", True, "wait")))  # noqa: S301 - our own
    assert isinstance(error, llmgw.LlmgwError)
    assert type(error) is leaf
    assert (error.message, error.code, error.retryable, error.hint) == ("no room", "queue_full", True, "wait")
    assert str(error) == "no room\nhint: wait"


def test_every_error_can_be_had_from_the_package() -> None:
    assert set(exceptions.__all__) <= set(llmgw.__all__)
    assert sorted(llmgw.__all__) == sorted(name for name in llmgw.__all__ if hasattr(llmgw, name))
