"""What changes would do, without a cluster."""

import llmgw
import pytest
from conftest import Json, wanted


def test_a_model_more_starts_where_it_fits(fleet: Json) -> None:
    outcome = llmgw.what_if(fleet, wanted("tiny", "6GiB"), [{"add": wanted("new", "9GiB")["models"][0]}])
    (start,) = outcome.starts
    assert (start.model, start.hostname) == ("new", "large")
    assert (outcome.moves, outcome.stops, outcome.unplaceable) == ((), (), ())
    assert outcome.to_dict()["starts"][0]["hostname"] == "large"


def test_what_would_fit_nowhere_says_why(fleet: Json) -> None:
    outcome = llmgw.what_if(fleet, {"models": []}, [{"add": wanted("big", "400GB")["models"][0]}])
    (report,) = outcome.unplaceable
    assert report.model == "big"
    (remedy,) = report.remedies
    assert (remedy.kind, remedy.places) == ("node", None)


async def test_the_awaited_answer_is_the_same(fleet: Json) -> None:
    changes: list[Json] = [{"remove": "tiny"}]
    awaited = await llmgw.what_if_async(fleet, wanted("tiny", "6GiB"), changes)
    assert awaited == llmgw.what_if(fleet, wanted("tiny", "6GiB"), changes)
    assert [stop.why for stop in awaited.stops] == ["removed"]


def test_a_change_that_can_not_be_made_is_named(fleet: Json) -> None:
    with pytest.raises(llmgw.ConfigError, match=r"changes\[1\]\.remove: there is no model x"):
        llmgw.what_if(fleet, wanted("tiny", "6GiB"), [{"remove": "tiny"}, {"remove": "x"}])
    with pytest.raises(llmgw.ConfigError, match="changes"):
        llmgw.what_if(fleet, wanted("tiny", "6GiB"), [{"dance": 1}])
