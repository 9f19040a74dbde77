"""Where models go and why not, without a cluster."""

import asyncio
import math
from typing import Any

import llmgw
import pytest
from conftest import NODE, Json, wanted

GIB = 1 << 30


def test_a_model_goes_where_it_fits(fleet: Json) -> None:
    plan = llmgw.plan(fleet, wanted("new", "9GiB"))
    (placement,) = plan.placements
    assert (placement.model, placement.hostname, placement.node) == ("new", "large", NODE)
    assert (placement.profile, placement.memory) == ("default", 9 * GIB)
    (report,) = plan.reports
    assert report.fits is not None
    assert report.fits.hostname == "large"
    assert report.headline == "new fits on large with default"


def test_a_model_that_fits_nowhere_is_explained_node_by_node(fleet: Json) -> None:
    plan = llmgw.plan(fleet, wanted("big", "400GB"))
    assert plan.placements == ()
    (report,) = plan.reports
    assert report.fits is None
    assert (report.nodes, report.profiles) == (2, 1)
    assert [(count.check, count.nodes) for count in report.summary] == [("memory", 2)]
    have = {"large": 10 * GIB, "small": 8 * GIB}
    assert {rejection.hostname for rejection in report.rejections} == set(have)
    for rejection in report.rejections:
        (reason,) = rejection.reasons
        assert reason.check == "memory"
        assert reason.need == 400_000_000_000
        assert reason.have == have[rejection.hostname]
        assert reason.short_by == 400_000_000_000 - have[rejection.hostname]
    assert report.nearest is not None
    assert report.nearest.hostname == "large"
    text = str(report)
    assert text.startswith(report.headline)
    assert "small" in text


def test_what_runs_already_is_not_placed_again(fleet: Json) -> None:
    assert llmgw.plan(fleet, wanted("tiny", "6GiB")).placements == ()
    assert len(llmgw.plan(fleet, wanted("tiny", "6GiB", replicas=2)).placements) == 1


async def test_the_awaited_plan_is_the_same(fleet: Json) -> None:
    demands = [wanted("a", "5GiB"), wanted("b", "400GB"), {"models": []}]
    plans = await asyncio.gather(*(llmgw.plan_async(fleet, demand) for demand in demands))
    assert plans == [llmgw.plan(fleet, demand) for demand in demands]


def test_a_plan_is_frozen_and_survives_as_a_dict(fleet: Json) -> None:
    plan = llmgw.plan(fleet, wanted("new", "9GiB"))
    data = plan.to_dict()
    assert data["placements"] == [placement.to_dict() for placement in plan.placements]
    assert data["reports"][0]["fits"] == {"node": NODE, "hostname": "large", "profile": "default"}
    assert repr(plan.placements[0]).startswith("Placement(model='new', profile='default', node='node-")
    name = "model"
    with pytest.raises(AttributeError):
        setattr(plan.placements[0], name, "other")
    with pytest.raises(TypeError):
        type("Sub", (llmgw.Plan,), {})


def broken(fleet: Json, field: str, value: object) -> Json:
    fleet["nodes"][1][field] = value
    return fleet


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("memory_allocatable", "lots", 'fleet.nodes[1].memory_allocatable: "lots" is not a size'),
        ("memory_allocatable", -1, "fleet.nodes[1].memory_allocatable: "),
        ("memory_allocatable", math.nan, "fleet: "),
        ("id", "box", 'fleet.nodes[1].id: "box" is not a node id'),
        ("state", "asleep", "fleet.nodes[1].state: unknown variant `asleep`"),
        ("gpu", 8, "fleet.nodes[1].gpu: unknown field `gpu`"),
        ("gpus", [{"index": 0, "memory": 0}], "fleet.nodes[1].gpus[0].memory: a GPU of 0 B is none"),
        ("hostname", {1, 2}, "fleet: Object of type set is not JSON serializable"),
    ],
)
def test_bad_input_names_the_field(fleet: Json, field: str, value: object, said: str) -> None:
    with pytest.raises(llmgw.ConfigError) as caught:
        llmgw.plan(broken(fleet, field, value), {"models": []})
    assert str(caught.value).startswith(said)
    assert caught.value.code == "invalid_request"
    assert not caught.value.retryable
    assert isinstance(caught.value, ValueError)


def test_bad_input_of_other_shapes_is_refused(fleet: Json) -> None:
    cases: list[tuple[Any, Any, str]] = [
        ([], {"models": []}, "fleet: invalid "),
        (fleet, None, "wanted: invalid type: null"),
        ({}, {"models": []}, "fleet: missing field `nodes`"),
        (fleet, wanted("a b", "1GiB"), 'wanted.models[0]: name: "a b" is not a model name'),
        (fleet, wanted("a", "0"), "wanted.models[0]: profiles[0].memory: 0 B can't hold a model"),
    ]
    for bad_fleet, bad_wanted, said in cases:
        with pytest.raises(llmgw.ConfigError) as caught:
            llmgw.plan(bad_fleet, bad_wanted)
        assert str(caught.value).startswith(said), str(caught.value)


async def test_bad_input_is_refused_before_anything_is_awaited(fleet: Json) -> None:
    with pytest.raises(llmgw.ConfigError):
        llmgw.plan_async(fleet, {})
