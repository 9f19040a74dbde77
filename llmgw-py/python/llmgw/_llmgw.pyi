"""The compiled half of the package. A section here is a module there: `llmgw-py/src/`."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, final

__all__ = [
    "CheckCount",
    "Client",
    "Ending",
    "Explanation",
    "FabricPort",
    "FetchProgress",
    "Fit",
    "Frozen",
    "Guard",
    "Model",
    "Move",
    "Node",
    "NodeWarning",
    "Orders",
    "Os",
    "Outcome",
    "Placement",
    "Plan",
    "Profile",
    "Provision",
    "Reason",
    "Rejection",
    "Remedy",
    "Replica",
    "Report",
    "Settings",
    "SilentNode",
    "Start",
    "Stop",
    "Summary",
    "UnhealthyGpu",
    "Usage",
    "_shutdown",
    "plan",
    "plan_async",
    "what_if",
    "what_if_async",
]

_ReplicaState: TypeAlias = Literal[
    "placing",
    "provisioning",
    "fetching",
    "starting",
    "ready",
    "draining",
    "stopped",
    "failed",
    "lost",
    "unknown",
]

# === runtime: owned by the package, ended before the interpreter ===

def _shutdown() -> None:
    """Drops what is pending and joins the runtime's threads. Called at exit; afterwards every operation raises."""

# === sched: where models go, and why not ===

def plan(fleet: Mapping[str, object], wanted: Mapping[str, object]) -> Plan:
    """Places what is wanted and not there yet, on a snapshot of a fleet; asks no cluster and changes nothing.

    `fleet` is `{"nodes": [...]}`, each with `id`, `hostname`, `memory_allocatable`, `gpus`, `engines`, `replicas`;
    `wanted` is `{"models": [...]}`, each as `Client.add` takes it. Sizes are bytes or texts such as `24GiB`. A model
    whose number of replicas follows its load is to have as many as run now.

    Raises `ConfigError`, which names the field, when either can't be right.
    """

def plan_async(fleet: Mapping[str, object], wanted: Mapping[str, object]) -> asyncio.Future[Plan]:
    """The same, on a thread of its own."""

@final
class Placement:
    """A replica to start."""

    @property
    def model(self) -> str | None:
        """The model; None when it is summed up over all."""

    @property
    def profile(self) -> str:
        """How to run it."""

    @property
    def node(self) -> str:
        """The id of the node."""

    @property
    def hostname(self) -> str:
        """What people call that node."""

    @property
    def memory(self) -> int:
        """What to reserve there of main memory, in bytes."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """The numbers of the GPUs there."""

    @property
    def replaces(self) -> str | None:
        """The replica on a draining node whose place it takes."""

    @property
    def after(self) -> tuple[str, ...]:
        """Replicas that have to end before there is room."""

    @property
    def waits(self) -> bool:
        """Whether another start on one of its GPUs has to end first."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Stop:
    """A replica to stop."""

    @property
    def replica(self) -> str:
        """Which."""

    @property
    def model(self) -> str:
        """Its model."""

    @property
    def node(self) -> str:
        """The id of the node where it runs."""

    @property
    def why(self) -> str:
        """Why: `surplus`, `drained`, or `room for MODEL`."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Plan:
    """What to do about what is wanted."""

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Replicas to start, by model, then in the order in which they were placed."""

    @property
    def stops(self) -> tuple[Stop, ...]:
        """Replicas to stop, by model, the first to stop first."""

    @property
    def reports(self) -> tuple[Report, ...]:
        """One for each model that lacks replicas, by name: of the trial that failed, or of the last that succeeded."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

# === whatif: what changes would do ===

def what_if(
    fleet: Mapping[str, object], wanted: Mapping[str, object], changes: Sequence[Mapping[str, object]]
) -> Outcome:
    """Says what changes would do to a snapshot of a fleet; asks no cluster and changes nothing.

    `fleet` and `wanted` as `plan` takes them. A change is one of `{"add": model}`, `{"edit": model}`,
    `{"remove": name}`, `{"scale": {"model": name, "replicas": n}}`, `{"drain": node}`, `{"lose": node}` and
    `{"add_nodes": {"like": node, "count": n}}`; nodes are named by host name or id.

    Raises `ConfigError`, which names the field, when one can't be made.
    """

def what_if_async(
    fleet: Mapping[str, object], wanted: Mapping[str, object], changes: Sequence[Mapping[str, object]]
) -> asyncio.Future[Outcome]:
    """The same, on a thread of its own."""

@final
class Start:
    """A replica that begins."""

    @property
    def model(self) -> str:
        """The model."""

    @property
    def profile(self) -> str:
        """How it runs."""

    @property
    def node(self) -> str:
        """The id of the node."""

    @property
    def hostname(self) -> str:
        """What people call that node."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """The numbers of the GPUs there."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Move:
    """A replica that ends in one place and begins in another."""

    @property
    def replica(self) -> str:
        """The one that ends."""

    @property
    def origin(self) -> str:
        """What people call its node."""

    @property
    def to(self) -> Start:
        """The one that begins."""

    @property
    def why(self) -> str:
        """Why: `edited`, `drained` or `lost`."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Ending:
    """A replica that ends."""

    @property
    def replica(self) -> str:
        """Which."""

    @property
    def model(self) -> str:
        """What it serves."""

    @property
    def hostname(self) -> str:
        """What people call its node."""

    @property
    def why(self) -> str:
        """Why: `surplus`, `removed`, `edited`, `drained`, `lost` or `evicted`."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Outcome:
    """What changes would do."""

    @property
    def moves(self) -> tuple[Move, ...]:
        """Replicas that end here and begin there."""

    @property
    def starts(self) -> tuple[Start, ...]:
        """Replicas that begin."""

    @property
    def stops(self) -> tuple[Ending, ...]:
        """Replicas that end."""

    @property
    def unplaceable(self) -> tuple[Report, ...]:
        """Models that would lack replicas and don't now, with the reasons."""

    @property
    def lacking_already(self) -> tuple[str, ...]:
        """Models that lack replicas now, and would still."""

    @property
    def last_slots(self) -> tuple[str, ...]:
        """Models that could have one more replica now, and could not then."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

# === control: a control plane over its admin API ===

@final
class Client:
    """A control plane, asked over its admin API. Makes no connection until it is asked.

    The admin token is given as `token`, or read once from `token_file`: `admin.token` in the data directory.

    Raises `UnavailableError` when no control plane answers, `AccessError` for a wrong token, `NotFoundError`
    for a model that is not there, `ConflictError` for a name that is taken, and `ConfigError` for a definition
    that can't be right.
    """

    def __new__(
        cls,
        url: str,
        token: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
    ) -> Client: ...
    @property
    def url(self) -> str:
        """The address."""

    @property
    def settings(self) -> Settings:
        """What holds for the whole cluster, and its own document."""

    @property
    def guard(self) -> Guard:
        """What is looked for in prompts and answers."""

    @property
    def orders(self) -> Orders:
        """What is ordered of it, and what is looked up for that."""

    def summary(self) -> Summary:
        """The state of the whole in one look."""

    def summary_async(self) -> asyncio.Future[Summary]:
        """The same, awaited."""

    def nodes(self) -> list[Node]:
        """All nodes, by host name."""

    def nodes_async(self) -> asyncio.Future[list[Node]]:
        """The same, awaited."""

    def snapshot(self) -> dict[str, Any]:
        """All that a plan is made from: `policy`, `fleet` and `models`, as `plan()` takes them."""

    def snapshot_async(self) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def models(self) -> list[Model]:
        """All models, by name."""

    def models_async(self) -> asyncio.Future[list[Model]]:
        """The same, awaited."""

    def replicas(self, model: str | None = None) -> list[Replica]:
        """All replicas, or those of a model; an alias will do."""

    def replicas_async(self, model: str | None = None) -> asyncio.Future[list[Replica]]:
        """The same, awaited."""

    def log(self, replica: str, *, lines: int = 100, after: int | None = None, wait: str = "0s") -> dict[str, Any]:
        """A part of what a replica's engine wrote: its last `lines`, or what came `after` a cursor.

        The part has `lines`, the `cursor` to go on from, `skipped` (bytes that are lost because the log had grown too
        large) and, when nothing more will come, its `end` with a `reason` and a `text`. When there is nothing yet, it
        is waited for: for `wait`, and no longer than 10 seconds.

        Raises `NotFoundError` for a replica that has no log, and `UnavailableError` when its node can't be asked.
        """

    def log_async(
        self, replica: str, *, lines: int = 100, after: int | None = None, wait: str = "0s"
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def explain(self, model: str) -> Explanation:
        """Why a model is placed or not, after a fresh trial; an alias will do."""

    def explain_async(self, model: str) -> asyncio.Future[Explanation]:
        """The same, awaited."""

    def add(self, definition: Mapping[str, object]) -> str:
        """Adds a model and gives back its name."""

    def add_async(self, definition: Mapping[str, object]) -> asyncio.Future[str]:
        """The same, awaited."""

    def replace(self, definition: Mapping[str, object]) -> int:
        """Defines a model that was added otherwise, and gives back how many of its replicas run on as before until it
        is rolled.
        """

    def replace_async(self, definition: Mapping[str, object]) -> asyncio.Future[int]:
        """The same, awaited."""

    def remove(self, model: str) -> None:
        """Removes a model, and stops its replicas."""

    def remove_async(self, model: str) -> asyncio.Future[None]:
        """The same, awaited."""

    def retry(self, model: str) -> None:
        """Lets a parked model be tried again, at once; an alias will do."""

    def retry_async(self, model: str) -> asyncio.Future[None]:
        """The same, awaited."""

    def usage(self, *, by: str | None = None, since: str = "24h") -> list[Usage]:
        """What was used within the last `since`: by model and key, or by what `by` names, such as `level,model,day`."""

    def usage_async(self, *, by: str | None = None, since: str = "24h") -> asyncio.Future[list[Usage]]:
        """The same, awaited."""

# === settings: what holds for the whole cluster ===

@final
class Settings:
    """What holds for the whole cluster, and its own document; `Client.settings` gives it.

    Answers are plain data, in the words of the admin API.
    """

    def in_force(self) -> dict[str, Any]:
        """What holds, and which version of the document is in force."""

    def in_force_async(self) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def document(self, version: int | None = None) -> dict[str, Any]:
        """The document, or this version of it, as it was written."""

    def document_async(self, version: int | None = None) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def history(self, *, before: int | None = None, limit: int = 1_000) -> list[dict[str, Any]]:
        """Its versions, the newest first."""

    def history_async(self, *, before: int | None = None, limit: int = 1_000) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def put(self, document: str, *, base: int | None = None) -> dict[str, Any]:
        """Takes a document in the place of the one before, if `base` is still the newest; it is in force at once."""

    def put_async(self, document: str, *, base: int | None = None) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def roll_back(self, version: int) -> dict[str, Any]:
        """Brings the text of an earlier version back, as a new one; 0 for a document that says nothing."""

    def roll_back_async(self, version: int) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def try_out(self, document: str) -> dict[str, Any]:
        """What a document would come to, and what the planner would do; changes nothing."""

    def try_out_async(self, document: str) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

# === guard: what is looked for in prompts and answers ===

@final
class Guard:
    """What is looked for in prompts and answers; `Client.guard` gives it.

    The rules themselves are a key of the settings. Answers are plain data, in the words of the admin API.
    """

    def rules(self, *, level: str = "/") -> dict[str, Any]:
        """The rules that hold for a level."""

    def rules_async(self, *, level: str = "/") -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def try_text(self, text: str, *, level: str = "/", stage: str = "input") -> dict[str, Any]:
        """What would be found in a text, and done about it; the text is kept nowhere."""

    def try_text_async(self, text: str, *, level: str = "/", stage: str = "input") -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def decisions(self, *, since: str = "24h", limit: int = 1_000) -> list[dict[str, Any]]:
        """The calls of the last `since` that rules matched, the newest first."""

    def decisions_async(self, *, since: str = "24h", limit: int = 1_000) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

# === orders: what is ordered of a control plane ===

@final
class Orders:
    """What is ordered of a control plane, and what is looked up for that; `Client.orders` gives it.

    Answers are plain data, in the words of the admin API.
    """

    def engines(self) -> list[dict[str, Any]]:
        """Engines: which are wanted, who chose them so, how far each node is."""

    def engines_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def choose_engine(
        self,
        name: str,
        *,
        version: str | None = None,
        source: str | None = None,
        variant: str | None = None,
    ) -> dict[str, Any]:
        """Has every node get an engine so, over what the settings say; gives what they are told."""

    def choose_engine_async(
        self,
        name: str,
        *,
        version: str | None = None,
        source: str | None = None,
        variant: str | None = None,
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def unset_engine(self, name: str) -> dict[str, Any]:
        """Takes the choice of an engine back; gives what the settings say of it."""

    def unset_engine_async(self, name: str) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def scale(
        self,
        model: str,
        *,
        min_replicas: int | None = None,
        max_replicas: int | None = None,
        idle_timeout: str | None = None,
    ) -> dict[str, Any]:
        """Runs a model between so many replicas; gives what is in force."""

    def scale_async(
        self,
        model: str,
        *,
        min_replicas: int | None = None,
        max_replicas: int | None = None,
        idle_timeout: str | None = None,
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def roll(self, model: str, *, force: bool = False) -> dict[str, Any]:
        """Replaces the stale replicas of a model, one after the other; where there is no room for one more, it waits,
        or, forced, stops an old one first.
        """

    def roll_async(self, model: str, *, force: bool = False) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def use_node(
        self,
        node: str,
        state: Literal["ready", "cordoned", "draining"],
        *,
        reason: str = "",
        force: bool = False,
    ) -> dict[str, Any]:
        """Uses a node, named by host name or id, otherwise; gives what is in force. A drain that is forced stops what
        has no room elsewhere.
        """

    def use_node_async(
        self,
        node: str,
        state: Literal["ready", "cordoned", "draining"],
        *,
        reason: str = "",
        force: bool = False,
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def thaw(self) -> dict[str, Any]:
        """Goes on without the nodes that fell silent at once; gives what was frozen."""

    def thaw_async(self) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def holds(self) -> list[dict[str, Any]]:
        """Where nothing is placed or moved."""

    def holds_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def hold(
        self,
        name: str,
        *,
        facility: str | None = None,
        pool: str | None = None,
        node: str | None = None,
        reason: str = "",
        lasts: str | None = None,
    ) -> dict[str, Any]:
        """Places and moves nothing in a facility, in a pool or on a node; one of that name is replaced."""

    def hold_async(
        self,
        name: str,
        *,
        facility: str | None = None,
        pool: str | None = None,
        node: str | None = None,
        reason: str = "",
        lasts: str | None = None,
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def lift(self, name: str) -> None:
        """Lifts a hold."""

    def lift_async(self, name: str) -> asyncio.Future[None]:
        """The same, awaited."""

    def capacities(self) -> list[dict[str, Any]]:
        """What models were measured to do."""

    def capacities_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def record_capacity(self, model: str, measurement: Mapping[str, Any]) -> dict[str, Any]:
        """Keeps a measurement of a model; gives it as it is kept."""

    def record_capacity_async(self, model: str, measurement: Mapping[str, Any]) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def keys(self) -> list[dict[str, Any]]:
        """API keys, without their secrets."""

    def keys_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def create_key(
        self,
        name: str,
        *,
        level: str = "/",
        expires_in: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Makes an API key; its secret is in the answer, and never shown again."""

    def create_key_async(
        self,
        name: str,
        *,
        level: str = "/",
        expires_in: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def limit_key(self, key: str, *, limits: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Limits an API key so from now on, in the place of all that was limited for it alone."""

    def limit_key_async(self, key: str, *, limits: Mapping[str, Any] | None = None) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def revoke_key(self, key: str) -> None:
        """Revokes an API key."""

    def revoke_key_async(self, key: str) -> asyncio.Future[None]:
        """The same, awaited."""

    def levels(self) -> list[dict[str, Any]]:
        """Organisations, teams and projects, and what is limited there; `/` is the cluster itself."""

    def levels_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def create_level(self, level: str, *, limits: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Makes an organisation, a team of one, or a project of a team."""

    def create_level_async(
        self, level: str, *, limits: Mapping[str, Any] | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def limit_level(self, level: str, *, limits: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Limits a level so, in the place of all that was limited there."""

    def limit_level_async(
        self, level: str, *, limits: Mapping[str, Any] | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def remove_level(self, level: str) -> None:
        """Removes a level that no key and no other level is in."""

    def remove_level_async(self, level: str) -> asyncio.Future[None]:
        """The same, awaited."""

    def prices(self) -> list[dict[str, Any]]:
        """What models cost, and have cost, for a million tokens in millionths of the cluster's currency."""

    def prices_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def set_price(self, model: str, *, prompt: int, completion: int, cached: int | None = None) -> dict[str, Any]:
        """Has a model cost so much from now on, for a million tokens in millionths of the cluster's currency."""

    def set_price_async(
        self, model: str, *, prompt: int, completion: int, cached: int | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def tokens(self) -> list[dict[str, Any]]:
        """Admin tokens with roles, without their secrets."""

    def tokens_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def create_token(self, name: str, *, role: Literal["viewer", "operator", "admin"] = "viewer") -> dict[str, Any]:
        """Makes an admin token; its secret is in the answer, and never shown again."""

    def create_token_async(
        self, name: str, *, role: Literal["viewer", "operator", "admin"] = "viewer"
    ) -> asyncio.Future[dict[str, Any]]:
        """The same, awaited."""

    def revoke_token(self, token: str) -> None:
        """Revokes an admin token."""

    def revoke_token_async(self, token: str) -> asyncio.Future[None]:
        """The same, awaited."""

    def jobs(self) -> list[dict[str, Any]]:
        """Long work that is under way."""

    def jobs_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def audit(self, *, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """What was ordered, by whom: the entries after a number."""

    def audit_async(self, *, after: int = 0, limit: int = 1000) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def decisions(self, model: str | None = None, *, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """What was decided, on a model or on all: after a number."""

    def decisions_async(
        self, model: str | None = None, *, after: int = 0, limit: int = 1000
    ) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def logs(self, model: str) -> list[dict[str, Any]]:
        """What the engines of a model said last."""

    def logs_async(self, model: str) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def orphans(self) -> list[dict[str, Any]]:
        """Weights on disks that no model refers to."""

    def orphans_async(self) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

    def collect(self, digests: list[str]) -> list[dict[str, Any]]:
        """Removes such weights from every node that lists them; gives those, with why some stay."""

    def collect_async(self, digests: list[str]) -> asyncio.Future[list[dict[str, Any]]]:
        """The same, awaited."""

# === reasons: why something does not fit ===

@final
class Reason:
    """Why one check failed."""

    @property
    def check(self) -> Literal["node", "engine", "memory", "disk"]:
        """Which check: `node`, `engine`, `memory` or `disk`."""

    @property
    def need(self) -> int | str:
        """What was asked for: bytes, or a text."""

    @property
    def have(self) -> int | str | None:
        """What there is; None when it is not known."""

    @property
    def short_by(self) -> int | None:
        """How many bytes are missing, where that is a number."""

    @property
    def detail(self) -> str:
        """The sentence for people."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Rejection:
    """A node that can't take a replica with a profile."""

    @property
    def node(self) -> str:
        """The node's id."""

    @property
    def hostname(self) -> str:
        """What people call the node."""

    @property
    def profile(self) -> str:
        """The profile that was tried."""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All checks that failed; at least one."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Fit:
    """A place for a replica."""

    @property
    def node(self) -> str:
        """The node's id."""

    @property
    def hostname(self) -> str:
        """What people call the node."""

    @property
    def profile(self) -> str:
        """The profile."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class CheckCount:
    """How many nodes fail first at a check."""

    @property
    def check(self) -> Literal["node", "engine", "memory", "disk"]:
        """The check."""

    @property
    def nodes(self) -> int:
        """The nodes."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Remedy:
    """A change after which a model was placed when it was tried. `str()` says it for people."""

    @property
    def places(self) -> Fit | None:
        """Where the model is placed then; None for a node that is not there yet."""

    @property
    def kind(self) -> str:
        """What kind of change: `context`, `slots`, `profile`, `stop`, `wait`, `ready`, `lift`, `disk` or `node`."""

    @property
    def change(self) -> str:
        """What to change, in a few words."""

    @property
    def when(self) -> str:
        """When it helps: `now`, `later`, or about how long it takes."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Report:
    """What became of a trial to place one more replica of a model. `str()` explains it for people."""

    @property
    def model(self) -> str:
        """The model."""

    @property
    def nodes(self) -> int:
        """How many nodes were looked at."""

    @property
    def profiles(self) -> int:
        """How many profiles were tried."""

    @property
    def replicas(self) -> int:
        """How many replicas it should have; 0 when one was only asked about."""

    @property
    def missing(self) -> int:
        """How many of them have no place."""

    @property
    def fits(self) -> Fit | None:
        """Where it can go; None when nowhere."""

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """Every node and profile that can't take it."""

    @property
    def summary(self) -> tuple[CheckCount, ...]:
        """How many nodes fail first at which check."""

    @property
    def nearest(self) -> Rejection | None:
        """The rejection that lacks least; None when it fits or when there is no node."""

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """What would help, by kind in a fixed order; each was tried."""

    @property
    def headline(self) -> str:
        """The whole in one line."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Explanation:
    """Why a model is placed or not."""

    @property
    def model(self) -> str:
        """The model, by its own name."""

    @property
    def placed(self) -> bool:
        """Whether it has all the replicas it should have."""

    @property
    def replicas(self) -> tuple[str, ...]:
        """The ids of its replicas."""

    @property
    def report(self) -> Report:
        """A fresh trial to place one more."""

    @property
    def headline(self) -> str:
        """The same for people, in one line."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

# === cluster: nodes, models, replicas, usage ===

@final
class Summary:
    """The state of a cluster in one look."""

    @property
    def version(self) -> str:
        """The release of the control plane."""

    @property
    def leading(self) -> bool:
        """Whether this control plane leads."""

    @property
    def epoch(self) -> int:
        """The lease epoch; 0 without a lease."""

    @property
    def store(self) -> str:
        """Whether the store answers."""

    @property
    def uptime_seconds(self) -> int:
        """Seconds since it started."""

    @property
    def nodes_ready(self) -> int:
        """Nodes that are used: heard, and neither cordoned nor draining."""

    @property
    def nodes_total(self) -> int:
        """All nodes that are known."""

    @property
    def models_satisfied(self) -> int:
        """Models that have all the replicas they should have."""

    @property
    def models_total(self) -> int:
        """All models."""

    @property
    def replicas_ready(self) -> int:
        """Replicas that serve."""

    @property
    def replicas_total(self) -> int:
        """All replicas."""

    @property
    def requests(self) -> int:
        """Calls that were answered since the start."""

    @property
    def attention(self) -> tuple[str, ...]:
        """What an operator should look at, a sentence each."""

    @property
    def frozen(self) -> Frozen | None:
        """That nothing is moved, for too many nodes fell silent at once; None while that is not so."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Frozen:
    """Too many nodes fell silent at once: nothing is moved until they are heard, or `orders.thaw()` goes on."""

    @property
    def seconds(self) -> int:
        """Whole seconds since then."""

    @property
    def silent(self) -> tuple[SilentNode, ...]:
        """The nodes that were silent then."""

    @property
    def of(self) -> int:
        """How many nodes there were, those included."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class SilentNode:
    """A node that is not heard."""

    @property
    def hostname(self) -> str:
        """What people call it."""

    @property
    def id(self) -> str:
        """Its id."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Os:
    """An operating system."""

    @property
    def id(self) -> str:
        """Such as `debian`."""

    @property
    def version(self) -> str | None:
        """Such as `12`; None on a rolling release."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class NodeWarning:
    """Something about a machine that its operator should know."""

    @property
    def code(self) -> str:
        """A stable name, such as `no_avx2`."""

    @property
    def text(self) -> str:
        """The sentence for people."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Provision:
    """How far a node is with an engine."""

    @property
    def engine(self) -> str:
        """Which engine."""

    @property
    def state(self) -> Literal["pending", "waiting", "installing", "installed", "failed", "unknown"]:
        """The step: `pending`, `waiting`, `installing`, `installed`, `failed`, `unknown`; `to_dict` has details."""

    @property
    def choice(self) -> str | None:
        """Which source and why, in one line; None until it was chosen."""

    @property
    def description(self) -> str:
        """The step and its details in a few words."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class UnhealthyGpu:
    """A GPU that nothing is placed on; `to_dict` has its class too."""

    @property
    def index(self) -> int:
        """Its number on its node."""

    @property
    def fault(self) -> str:
        """What is wrong with it."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class FabricPort:
    """A node's port on a network that shards may span."""

    @property
    def kind(self) -> str:
        """`infiniband`, `roce` or `ethernet`."""

    @property
    def name(self) -> str | None:
        """Which network it is: nodes that name the same one reach each other."""

    @property
    def port(self) -> str:
        """The port, such as `mlx5_0/1`."""

    @property
    def gbps(self) -> int | None:
        """What it carries, in Gbit/s."""

    @property
    def up(self) -> bool:
        """Whether it carries data now."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Node:
    """A machine with an agent. What is not known is None, never zero."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def hostname(self) -> str:
        """What people call it."""

    @property
    def state(self) -> Literal["ready", "cordoned", "draining", "lost", "pending"]:
        """What it may be used for: `ready`, `cordoned`, `draining`, `lost` or `pending`."""

    @property
    def probed(self) -> bool:
        """Whether its agent has looked at it."""

    @property
    def labels(self) -> dict[str, str]:
        """The operator's own marks."""

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools that these make it one of."""

    @property
    def os(self) -> Os | None:
        """The operating system."""

    @property
    def arch(self) -> str:
        """The processor architecture."""

    @property
    def cpu_cores(self) -> int | None:
        """Cores."""

    @property
    def cpu_features(self) -> tuple[str, ...] | None:
        """Vector extensions."""

    @property
    def mgmt_addr(self) -> str | None:
        """The address from which its agent speaks with the control plane."""

    @property
    def gpu_total(self) -> int | None:
        """GPUs."""

    @property
    def gpu_free(self) -> int | None:
        """GPUs that work, are held by no replica and used by no other program."""

    @property
    def gpu_classes(self) -> tuple[str, ...] | None:
        """The classes of its GPUs, each once, sorted."""

    @property
    def unhealthy_gpus(self) -> tuple[UnhealthyGpu, ...] | None:
        """GPUs that nothing is placed on."""

    @property
    def fabrics(self) -> tuple[FabricPort, ...] | None:
        """Its ports on networks that shards may span."""

    @property
    def memory_total(self) -> int | None:
        """All main memory, in bytes."""

    @property
    def memory_gb(self) -> int | None:
        """The same in whole GiB, rounded down."""

    @property
    def memory_allocatable(self) -> int | None:
        """What engines may use in all, in bytes."""

    @property
    def memory_reserved(self) -> int:
        """What replicas have reserved, in bytes."""

    @property
    def disk_free(self) -> int | None:
        """What may still be written to the disk of the weights, in bytes."""

    @property
    def disk_free_gb(self) -> int | None:
        """The same in whole GiB, rounded down."""

    @property
    def disk_total(self) -> int | None:
        """The size of that disk, in bytes."""

    @property
    def disk_total_gb(self) -> int | None:
        """The same in whole GiB, rounded down."""

    @property
    def provision(self) -> tuple[Provision, ...]:
        """How far it is with each wanted engine."""

    @property
    def warnings(self) -> tuple[NodeWarning, ...]:
        """What makes it slow or unusable."""

    @property
    def last_seen_ago(self) -> int:
        """Seconds since it was heard."""

    @property
    def agent_version(self) -> str:
        """The release of its agent."""

    @property
    def replicas(self) -> int:
        """How many replicas it has."""

    @property
    def models_on_disk(self) -> tuple[str, ...] | None:
        """Models whose weights lie on its disk; `None` when its agent does not say."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Profile:
    """One way to run a model."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def engine(self) -> str:
        """Its engine."""

    @property
    def memory(self) -> int | None:
        """Main memory for one replica, in bytes; `None` while what its definition does not say is not known."""

    @property
    def memory_estimated(self) -> bool:
        """Whether that was estimated from what the weights say of themselves, and not declared."""

    @property
    def context(self) -> int:
        """Tokens of context for each request."""

    @property
    def parallel(self) -> int:
        """Requests at the same time."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Model:
    """A model that should run."""

    @property
    def name(self) -> str:
        """What clients call it."""

    @property
    def description(self) -> str:
        """For people."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names that clients may use."""

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Models that clients are to be served by when this one can't, in the order of preference."""

    @property
    def source(self) -> tuple[str, ...]:
        """Where its weights come from."""

    @property
    def origin(self) -> Literal["declared", "added"]:
        """Where it was said: `declared` in the settings or `added` by the API."""

    @property
    def desired(self) -> int:
        """How many replicas should run."""

    @property
    def ready_replicas(self) -> int:
        """How many serve."""

    @property
    def total_replicas(self) -> int:
        """How many there are, in any state."""

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Ways to run it."""

    @property
    def parked(self) -> bool:
        """Whether it is not tried again by itself after too many failures."""

    @property
    def failures(self) -> int:
        """Failures in a row."""

    @property
    def last_error(self) -> str | None:
        """The last failure."""

    @property
    def unplaceable(self) -> str | None:
        """Why a wanted replica is not placed, in one line."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class FetchProgress:
    """How far the fetch of weights is."""

    @property
    def source(self) -> str:
        """The source being read."""

    @property
    def bytes_done(self) -> int:
        """Bytes that are on the disk."""

    @property
    def bytes_total(self) -> int | None:
        """Bytes in all; None when the source did not say."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Replica:
    """One running copy of a model."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def model(self) -> str:
        """What it serves."""

    @property
    def profile(self) -> str:
        """How it runs."""

    @property
    def pool(self) -> str | None:
        """The pool that its profile asks for."""

    @property
    def stale(self) -> bool:
        """Whether its definition has changed since it was started."""

    @property
    def state(self) -> _ReplicaState:
        """How far it is, such as `starting` or `ready`."""

    @property
    def node(self) -> str:
        """The id of the node where it runs."""

    @property
    def hostname(self) -> str:
        """What people call that node."""

    @property
    def endpoint(self) -> str | None:
        """Where it listens on that node; None until it does."""

    @property
    def age_seconds(self) -> int:
        """Seconds since it was placed or adopted."""

    @property
    def in_flight(self) -> int:
        """Calls that it is answering now."""

    @property
    def error(self) -> str | None:
        """Why it failed."""

    @property
    def log_tail(self) -> tuple[str, ...]:
        """The last lines of its log, when it failed."""

    @property
    def fetch(self) -> FetchProgress | None:
        """How far the fetch of its weights is."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Usage:
    """What was used of a model, with a key, at a level, within a time, as far as was asked."""

    @property
    def at(self) -> int | None:
        """When the hour, the day or the month began, in milliseconds since the Unix epoch; None over the whole time."""

    @property
    def level(self) -> str | None:
        """The level that the key belonged to; None when it is summed up over all."""

    @property
    def model(self) -> str | None:
        """The model; None when it is summed up over all."""

    @property
    def key(self) -> str | None:
        """The key's id; None when it is summed up over all."""

    @property
    def requests(self) -> int:
        """Calls."""

    @property
    def errors(self) -> int:
        """Calls that ended with a status of 400 or more."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of prompts that the engines had in their caches."""

    @property
    def completion_tokens(self) -> int:
        """Tokens of all answers."""

    @property
    def cost_micros(self) -> int:
        """What it cost, in millionths of the cluster's currency."""

    @property
    def last_at(self) -> int | None:
        """When the last call came in, in milliseconds since the Unix epoch."""

    @property
    def scope(self) -> str | None:
        """`key`, or what such a level is called; None when the line is of neither."""

    @property
    def id(self) -> str | None:
        """The key's id, or the level's path."""

    @property
    def name(self) -> str | None:
        """What people call it; None for a key that was revoked."""

    @property
    def keys(self) -> int | None:
        """Keys that it has now."""

    @property
    def budget_micros(self) -> int | None:
        """Its own budget, in millionths of the cluster's currency."""

    @property
    def budget_period(self) -> str | None:
        """The budget's period."""

    @property
    def fraction(self) -> float | None:
        """How much of the budget is spent in the period that it is now: 1 is all of it."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict, in the words of the admin API; what is not known is left out."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
