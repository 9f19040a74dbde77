"""Starts the project's own programs, reads what they say, and ends them."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

BINARIES = os.environ.get("LLMGW_BIN_DIR")

needs_programs = pytest.mark.skipif(BINARIES is None, reason="LLMGW_BIN_DIR names no folder with the built programs")

PORTS = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]


class Program:
    """A program that runs until it is stopped; what it says is kept."""

    def __init__(self, name: str, *arguments: str) -> None:
        command = [str(Path(str(BINARIES)) / name), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = ""
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def wait_for(self, pattern: str, seconds: float) -> str:
        """What the group of `pattern` matches in all that was said, as soon as that is so."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self.said, re.MULTILINE)

        with self.news:
            self.news.wait_for(lambda: found() or not self.reader.is_alive(), seconds)
            match = found()
        assert match is not None, f"no {pattern!r} in:\n{self.said}"
        return match[1]

    def stop(self) -> None:
        self.process.terminate()
        try:
            assert self.process.wait(60) == 0, self.said
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.join()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            with self.news:
                self.said += line
                self.news.notify_all()
