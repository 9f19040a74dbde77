"""A cluster of one machine with a real engine and real models, for the clients of every API."""

from __future__ import annotations

import time
from pathlib import Path

import llmgw
import openai
from programs import PORTS, Program
from weights import with_template

# The starter model, and the same weights started for vectors.
MODEL = "smollm2-135m"
EMBEDDER = "embedder"
RERANKER = "reranker"
# The same with a chat template that knows tools.
TOOLED = "tooled"


class Up:
    """`llmgw up`, which serves the starter model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        flags = ["--data-dir", str(folder / "data"), "--api-key-file", str(folder / "key")]
        self.program = Program("llmgw", "up", *flags, *PORTS)

    @property
    def url(self) -> str:
        """Where clients come in, once the model is ready."""
        return self.program.wait_for(r"^curl (http://\S+)/v1/", 300)

    @property
    def key(self) -> str:
        return (self.folder / "key").read_text().strip()

    def openai(self, api_key: str | None = None) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=api_key or self.key, max_retries=0, timeout=120)

    def admin(self) -> llmgw.Client:
        url = self.program.wait_for(r"admin API on (http://[0-9.]+:[0-9]+)", 300)
        return llmgw.Client(url, token_file=self.folder / "data" / "admin.token")

    def add_models(self) -> None:
        """Adds the starter's weights under other names, for other uses; each is started by the first call."""
        # Where clients come in is said when the starter is ready, and its weights are here.
        assert self.url
        weights = next(self.folder.glob("data/**/SmolLM2*.gguf"))
        tooled = self.folder / "tooled.gguf"
        with_template(weights, tooled)
        for name, source, pooling in [
            (EMBEDDER, weights, "mean"),
            (RERANKER, weights, "rank"),
            (TOOLED, tooled, None),
        ]:
            profile = {"memory": "448MiB", "context": 512, "parallel": 1}
            definition = {
                "name": name,
                "source": f"file:{source}",
                "min_replicas": 0,
                "max_replicas": 1,
                "profiles": [profile | ({"pooling": pooling} if pooling else {})],
            }
            self.admin().add(definition)

    def until_idle(self) -> None:
        """Waits until no replica of the starter has a call."""
        deadline = time.monotonic() + 60
        while any(replica.in_flight for replica in self.admin().replicas(MODEL)):
            assert time.monotonic() < deadline
