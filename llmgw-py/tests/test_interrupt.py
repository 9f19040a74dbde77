"""Ctrl-C ends a call that blocks."""

import signal
import socket
import subprocess
import sys
import time

from conftest import TOKEN

SCRIPT = """
import signal, sys, llmgw
# A shell's background job starts with the signal ignored, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = llmgw.Client(sys.argv[1], sys.argv[2])
try:
    client.nodes()
except KeyboardInterrupt:
    print("interrupted")
    # It can be used again.
    print(len(llmgw.plan({"nodes": []}, {"models": []}).placements))
"""


def test_an_interrupt_ends_a_blocking_call_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-c", SCRIPT, url, TOKEN]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as script:
            # Its connection tells that it is inside the call.
            connection, _ = listener.accept()
            with connection:
                start = time.monotonic()
                script.send_signal(signal.SIGINT)
                output, errors = script.communicate(timeout=30)
            assert (output, errors, script.returncode) == ("interrupted\n0\n", "", 0)
            assert time.monotonic() - start < 10
