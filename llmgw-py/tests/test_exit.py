"""A script may end at any moment: its exit code is its own, and it ends at once."""

import time

import pytest
from conftest import TOKEN, AdminApi, python

ENDS_AFTER_AN_AWAIT = """
import asyncio, sys, llmgw
async def main():
    await llmgw.plan_async({"nodes": []}, {"models": []})
asyncio.run(main())
"""

ENDS_AFTER_AN_ANSWER = """
import asyncio, sys, llmgw
async def main():
    await llmgw.Client(sys.argv[1], sys.argv[2]).nodes_async()
asyncio.run(main())
"""

ENDS_WITH_RESULTS_ON_THEIR_WAY = """
import asyncio, sys, llmgw
async def main():
    global pending
    pending = [llmgw.plan_async({"nodes": []}, {"models": []}) for _ in range(200)]
    await pending[0]
asyncio.run(main())
"""

ENDS_WITH_PENDING_FUTURES = """
import asyncio, sys, llmgw
async def main():
    client = llmgw.Client(sys.argv[1], sys.argv[2])
    global pending
    pending = [client.nodes_async() for _ in range(50)]
    await llmgw.plan_async({"nodes": []}, {"models": []})
asyncio.run(main())
"""

ENDS_WHILE_A_THREAD_BLOCKS = """
import sys, threading, time, llmgw
client = llmgw.Client(sys.argv[1], sys.argv[2])
said = []
def block():
    try:
        client.nodes()
    except llmgw.UnavailableError as error:
        said.append(error.code)
thread = threading.Thread(target=block, daemon=True)
thread.start()
time.sleep(0.1)
import atexit
def check():
    thread.join()
    print(said)
# Handlers run last in, first out: this one must come after the package's own.
import llmgw._llmgw
atexit.unregister(llmgw._llmgw._shutdown)
atexit.register(check)
atexit.register(llmgw._llmgw._shutdown)
"""

CALLS_AFTER_THE_END = """
import llmgw
llmgw._llmgw._shutdown()
client = llmgw.Client("http://127.0.0.1:1", "token")
try:
    client.nodes()
except llmgw.UnavailableError:
    pass  # The runtime was never started, and may be.
llmgw._llmgw._shutdown()
try:
    client.nodes()
except llmgw.UnavailableError as error:
    print(error.code, error.retryable)
"""


def ends_well(script: str, url: str) -> str:
    start = time.monotonic()
    ended = python(script, url, TOKEN)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert time.monotonic() - start < 20
    return ended.stdout


# Each of the first three died in one of six runs without the hook at exit; twenty runs leave little to chance.
@pytest.mark.parametrize("attempt", range(20))
@pytest.mark.parametrize("script", [ENDS_AFTER_AN_AWAIT, ENDS_AFTER_AN_ANSWER, ENDS_WITH_RESULTS_ON_THEIR_WAY])
def test_a_script_that_ends_after_an_await_ends_well(admin: AdminApi, script: str, attempt: int) -> None:
    assert ends_well(script, admin.url) == "", attempt


@pytest.mark.parametrize("attempt", range(20))
def test_a_script_that_ends_with_pending_futures_ends_well(silent: str, attempt: int) -> None:
    assert ends_well(ENDS_WITH_PENDING_FUTURES, silent) == "", attempt


def test_a_thread_that_blocks_at_the_end_is_told(silent: str) -> None:
    assert ends_well(ENDS_WHILE_A_THREAD_BLOCKS, silent) == "['shutting_down']\n"


def test_calls_after_the_end_say_so(silent: str) -> None:
    assert ends_well(CALLS_AFTER_THE_END, silent) == "shutting_down True\n"
