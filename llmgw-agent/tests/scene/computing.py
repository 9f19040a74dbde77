#!/usr/bin/env python3
"""Stands in for an engine that is asked to compute with a check model.

It takes the flags of llama-server and those of our launcher. The variable PLAN
names a file of JSON, which says what it does:
  answers     pairs of a prompt and the tokens that follow it
  tokens      what to answer instead
  text        answer with this text and without numbers
  say         lines to print at the start
  exit        status to end with while it loads
  signal      signal to end by
  hang        whether it waits for ever
  phase       "loading" or "computing": when it does that
  status      status to answer with instead of 200
  starts      file that gets a line for each start: all flags
  child       file for the number of a child that leaves the group
  name        what to call itself
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


def main():
    if "--version" in sys.argv:
        print("version: 4711 (stand-in)")
        return
    with open(os.environ["PLAN"]) as file:
        plan = json.load(file)
    if "starts" in plan:
        with open(plan["starts"], "a") as file:
            file.write(json.dumps({"args": sys.argv[1:], "env": dict(os.environ), "limits": limits()}) + "\n")
    for line in plan.get("say", []):
        print(line, flush=True)
    if "child" in plan:
        child(plan["child"])
    if plan.get("phase", "loading") == "loading":
        go_wrong(plan)
    serve(plan)


def limits():
    import resource

    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in ("CORE", "CPU", "DATA")}


def child(path):
    if os.fork() == 0:
        os.setsid()
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        # Its pipes are not those of the engine any more: only its environment tells whose it is.
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        while True:
            signal.pause()
    while not os.path.exists(path) or not os.path.getsize(path):
        time.sleep(0.005)


def go_wrong(plan):
    if "signal" in plan:
        # Limits come a moment after the start, and a core is none of this test's.
        os.kill(os.getpid(), plan["signal"])
    if "exit" in plan:
        sys.exit(plan["exit"])
    while plan.get("hang"):
        signal.pause()


def serve(plan):
    flags = list(zip(sys.argv, sys.argv[1:]))
    aliases = [name for flag, names in flags if flag == "--alias" for name in names.split(",")]
    port = next(int(value) for flag, value in flags if flag == "--port")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/health":
                self.answer(200, {"status": "ok"})
            elif self.path == "/v1/models":
                names = [plan["name"]] if "name" in plan else aliases
                self.answer(200, {"data": [{"id": names[0], "aliases": names}]})
            else:
                self.answer(404, {})

        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if plan.get("phase") == "computing":
                go_wrong(plan)
            if "text" in plan:
                return self.answer(200, {"content": plan["text"]})
            tokens = next((follow for prompt, follow in plan["answers"] if prompt == question["prompt"]), [])
            tokens = plan.get("tokens", tokens)
            self.answer(plan.get("status", 200), {"content": "?", "tokens": tokens[: question["n_predict"]]})

        def answer(self, status, body):
            body = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
