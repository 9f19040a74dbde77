#!/usr/bin/env python3
"""Stands in for llama-server: takes its flags, and behaves as the model file says.

The model file is JSON. Its keys, all optional:
  say         lines to print at the start
  chatter     how many bytes to print then
  exit        status to end with, at once
  signal      signal to end by, at once
  loading     how often the health check is answered with 503 first
  name        what to list as the model, instead of the aliases
  tokens      how many tokens a completion has; 1 when absent
  children    kinds of processes to start first (see below)
  stubborn    whether this process and its children ignore SIGTERM
  pids        file to append the number of every process to
  mute        file whose existence makes the server answer nothing
  spin        whether it computes while it is mute
  no_tokens   file whose existence makes completions wait for ever
  busy        file that holds the number of requests in flight
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def main():
    if "--version" in sys.argv:
        print("version: 4711 (stand-in)", file=sys.stderr)
        return 0
    flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    with open(flags["-m"]) as file:
        plan = json.load(file)
    for line in plan.get("say", []):
        print(line, flush=True)
    for _ in range(plan.get("chatter", 0) // 1024):
        print("x" * 1023, flush=True)
    if plan.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(plan)
    for kind in plan.get("children", []):
        child(kind, plan)
    if "signal" in plan:
        os.kill(os.getpid(), plan["signal"])
    if "exit" in plan:
        return plan["exit"]
    if "--port" in flags:
        serve(plan, flags)
    while True:
        signal.pause()


def note(plan):
    if "pids" in plan:
        with open(plan["pids"], "a") as file:
            file.write(f"{os.getpid()}\n")


def child(kind, plan):
    """Starts a child and returns when it has written down its number."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        if kind == "session":
            os.setsid()
        elif kind == "group":
            os.setpgid(0, 0)
        elif kind in ("daemon", "vanished"):
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        if kind in ("bare", "vanished"):
            # A new program, without the marks.
            code = "import os, signal; os.write(%d, b'x'); signal.pause()" % writer
            os.set_inheritable(writer, True)
            note(plan)
            os.execve(sys.executable, [sys.executable, "-c", code], {})
        note(plan)
        os.write(writer, b"x")
        while True:
            signal.pause()
    os.read(reader, 1)
    os.close(reader)
    os.close(writer)


def serve(plan, flags):
    aliases = flags["--alias"].split(",")
    left = [plan.get("loading", 0)]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if "mute" in plan and os.path.exists(plan["mute"]):
                while plan.get("spin"):
                    pass
                threading.Event().wait()
            if self.path == "/health":
                left[0] -= 1
                self.answer(503 if left[0] >= 0 else 200, {})
            elif self.path == "/v1/models":
                names = [plan["name"]] if "name" in plan else aliases
                self.answer(200, {"data": [{"id": names[0], "aliases": names}]})
            elif self.path == "/slots":
                busy = 0
                if "busy" in plan and os.path.exists(plan["busy"]):
                    with open(plan["busy"]) as file:
                        busy = int(file.read() or 0)
                self.answer(200, [{"is_processing": True}] * busy)
            else:
                self.answer(404, {})

        def do_POST(self):
            if "no_tokens" in plan and os.path.exists(plan["no_tokens"]):
                threading.Event().wait()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(200, {"usage": {"completion_tokens": plan.get("tokens", 1)}})

        def answer(self, status, body):
            body = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    ThreadingHTTPServer(("127.0.0.1", int(flags["--port"])), Handler).serve_forever()


if __name__ == "__main__":
    sys.exit(main())
