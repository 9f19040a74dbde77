#!/usr/bin/env python3
"""An engine that no release knows: other flags, other paths, another way to end.

    described.py --model PATH --listen HOST:PORT [--alias NAME] --words FILE

It is prepared at the third question, answers `{"said": ...}` to /speak, counts what it does at /numbers, and says into
FILE which signal has ended it.
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
asked = {"prepared": 0, "spoken": 0}


def say(words):
    with open(flags["--words"], "a", encoding="utf-8") as file:
        file.write(words + "\n")


class Handler(BaseHTTPRequestHandler):
    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/prepared":
            asked["prepared"] += 1
            self.answer(200 if asked["prepared"] >= 3 else 503, "")
        elif self.path == "/alive":
            self.answer(200, "yes")
        elif self.path == "/names":
            self.answer(200, f"I am called {flags.get('--alias', 'nothing')}.")
        elif self.path == "/numbers":
            self.answer(200, f"# TYPE described_running gauge\ndescribed_running 0\nspoken {asked['spoken']}\n")
        else:
            self.answer(404, "")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked["spoken"] += 1
        self.answer(200, json.dumps({"said": body["name"], "limit": os.environ["DESCRIBED_LIMIT"]}))

    def log_message(self, *args):
        pass


def end(number, _frame):
    say(signal.Signals(number).name)
    threading.Thread(target=server.shutdown).start()


host, _, port = flags["--listen"].rpartition(":")
server = ThreadingHTTPServer((host, int(port)), Handler)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
say("serves " + flags["--model"])
server.serve_forever()
