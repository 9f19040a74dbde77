"""What is ordered of a real control plane, without a node."""

from __future__ import annotations

import llmgw
import pytest
from conftest import Server, wanted
from programs import needs_programs

pytestmark = needs_programs

DEFINITION = wanted("org/new:7b", "400GB")["models"][0]


def test_a_hold_stands_until_it_is_lifted(server: Server) -> None:
    orders = server.client().orders
    hold = orders.hold("north", facility="north", reason="new floor", lasts="2h")
    assert (hold["by"], hold["scope"], hold["until"] - hold["since"]) == ("admin", {"facility": "north"}, 7_200_000)
    assert orders.holds() == [hold]
    orders.lift("north")
    with pytest.raises(llmgw.NotFoundError):
        orders.lift("north")
    with pytest.raises(llmgw.ConfigError, match="name one of"):
        orders.hold("north", facility="north", pool="a")


async def test_a_model_is_scaled_and_measured(server: Server) -> None:
    client = server.client()
    orders = client.orders
    client.add(DEFINITION)
    try:
        scaled = await orders.scale_async(DEFINITION["name"], min_replicas=0, max_replicas=3, idle_timeout="5m")
        assert (scaled["on_demand"], scaled["idle_timeout"], scaled["max"]) == (True, 300_000_000_000, 3)
        with pytest.raises(llmgw.ConfigError, match="max"):
            orders.scale(DEFINITION["name"], min_replicas=3, max_replicas=2)
        with pytest.raises(llmgw.ConflictError):
            orders.roll(DEFINITION["name"])
        measured = {"profile": "default", "concurrency": 4, "tokens_per_second": 90}
        kept = orders.record_capacity(DEFINITION["name"], measured)
        assert kept["measured_by"] == "admin"
        assert orders.capacities() == [kept]
        assert orders.logs(DEFINITION["name"]) == []
        assert client.replace({**DEFINITION, "description": "edited"}) == 0
        (model,) = client.models()
        assert model.description == "edited"
    finally:
        client.remove(DEFINITION["name"])


def test_engines_are_chosen_and_taken_back(server: Server) -> None:
    orders = server.client().orders
    assert orders.choose_engine("llamacpp", version="b11000")["version"] == "b11000"
    (engine,) = orders.engines()
    assert engine["chosen"]["by"] == "admin"
    assert orders.unset_engine("llamacpp")["lifted"] == "llamacpp"
    with pytest.raises(llmgw.ConfigError, match="version"):
        orders.choose_engine("llamacpp", version="../x")
    with pytest.raises(llmgw.NotFoundError):
        orders.use_node("nobody", "draining", force=True)
    assert server.client().summary().frozen is None
    with pytest.raises(llmgw.ConflictError, match="nothing is frozen"):
        orders.thaw()


def test_a_token_opens_what_its_role_allows(server: Server) -> None:
    orders = server.client().orders
    made = orders.create_token("eve", role="viewer")
    viewer = llmgw.Client(server.url, made["secret"])
    assert viewer.summary().nodes_total == 0
    with pytest.raises(llmgw.AccessError, match="needs the role operator"):
        viewer.orders.hold("x", facility="y")
    orders.revoke_token(made["id"])
    with pytest.raises(llmgw.AccessError):
        viewer.summary()
    assert [token["id"] for token in orders.tokens()] == []
    actions = [entry["action"] for entry in orders.audit()]
    assert actions[-2:] == ["token.create", "token.revoke"]


def test_a_key_belongs_to_a_level(server: Server) -> None:
    orders = server.client().orders
    acme = orders.create_level("acme", limits={"models": ["small"]})
    assert (acme["kind"], acme["limits"]) == ("organisation", {"models": ["small"]})
    key = orders.create_key("ops", level="acme", expires_in="1h", limits={"models": ["small", "big"]})
    assert key["level"] == "acme"
    assert key["expires_at"] - key["created_at"] == 3_600_000
    limited = orders.limit_key(key["id"], limits={"concurrent": 2})
    assert (limited["limits"], limited["level"]) == ({"concurrent": 2}, "acme")
    assert [(level["path"], level["keys"]) for level in orders.levels()][1:] == [("acme", 1)]
    assert orders.limit_level("acme")["limits"] == {}
    with pytest.raises(llmgw.ConflictError, match="1 keys belong to acme"):
        orders.remove_level("acme")
    orders.revoke_key(key["id"])
    orders.remove_level("acme")


def test_a_model_has_a_price_and_a_level_a_budget(server: Server) -> None:
    client = server.client()
    client.add(DEFINITION)
    try:
        price = client.orders.set_price(DEFINITION["name"], prompt=500_000, completion=1_500_000)
        assert (price["cached"], price["completion"]) == (500_000, 1_500_000)
        assert client.orders.prices() == [price]
        with pytest.raises(llmgw.ConfigError, match="prompt"):
            client.orders.set_price(DEFINITION["name"], prompt=-1, completion=1)
    finally:
        client.remove(DEFINITION["name"])
    budget = {"amount_micros": 25_000_000, "period": "month"}
    acme = client.orders.create_level("acme", limits={"budgets": [budget]})
    (spending,) = acme["spending"]
    assert (spending["period"], spending["amount_micros"], spending["spent_micros"]) == ("month", 25_000_000, 0)
    client.orders.remove_level("acme")
    assert client.usage(by="organisation,day", since="30days") == []
    with pytest.raises(llmgw.ConfigError, match="by"):
        client.usage(by="fortnight")


def test_settings_are_written_tried_and_brought_back(server: Server) -> None:
    settings = server.client().settings
    before = settings.in_force()
    assert settings.document()["version"] == before["version"]
    document = "queue: {max_total: 77}\n"
    changes = {change["key"]: change["is"] for change in settings.try_out(document)["changes"]}
    # The usual bound of each model goes with it.
    assert changes == {"queue.max_per_model": 77, "queue.max_total": 77}
    kept = settings.put(document, base=before["version"])
    assert settings.in_force()["queue"]["max_total"] == 77
    with pytest.raises(llmgw.ConflictError, match="base"):
        settings.put("", base=before["version"])
    with pytest.raises(llmgw.ConfigError, match="document:1:1"):
        settings.put("frob: 1")
    assert settings.document(kept["version"])["document"] == document
    back = settings.roll_back(before["version"])
    assert back["brings_back"] == before["version"]
    assert settings.in_force()["queue"] == before["queue"]
    versions = [one["version"] for one in settings.history(limit=2)]
    assert versions == [kept["version"] + 1, kept["version"]]
    with pytest.raises(llmgw.NotFoundError, match="no version"):
        settings.roll_back(99)


def test_the_guard_is_shown_and_tried(server: Server) -> None:
    client = server.client()
    assert client.guard.rules()["baseline"] is True
    found = client.guard.try_text("4111 1111 1111 1111", level="acme")
    assert found["action"] == "flag"
    assert "action" not in client.guard.try_text("hello", stage="output")
    with pytest.raises(llmgw.ConfigError, match="stage"):
        client.guard.try_text("x", stage="sideways")
    before = client.settings.in_force()["version"]
    client.settings.put("guard: {rules: [{name: words, keywords: [blue], action: block}]}")
    (rule,) = client.guard.rules()["rules"]
    assert rule["rule"]["name"] == "words"
    client.settings.roll_back(before)
    assert client.guard.decisions(since="1h") == []
