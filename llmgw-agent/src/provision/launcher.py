"""Serves one GGUF model with the llama.cpp server of the xllamacpp package.

Written by the llmgw agent beside the environment that it installs; replaced
whenever it differs from the agent's own copy.
"""

import argparse
import errno
import os
import signal
import socket
import sys

NAME = "llmgw-launcher"
POOLING = ("auto", "mean", "cls", "last", "rank")


def main():
    # Until the model is loaded, a signal ends the process at once: the main
    # thread is inside the engine then and runs no handler.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.reconfigure(line_buffering=True)

    arguments = parse()
    try:
        import xllamacpp
    except Exception as error:
        return fail(f"the engine can't be imported: {error}")
    if arguments.version:
        print(f"xllamacpp {xllamacpp.__version__}")
        return 0

    problem = unreadable(arguments.model)
    if problem:
        return fail(f"cannot load {arguments.model}: {problem}")
    if is_taken(arguments.host, arguments.port):
        return fail(f"{arguments.host}:{arguments.port} is taken by another program")
    try:
        server = xllamacpp.Server(parameters(xllamacpp, arguments))
    except Exception as error:
        return fail(f"cannot load {arguments.model}: the engine refused it ({error}); its log says why")
    ended = signals()
    say(f"listening on {server.listening_address.removeprefix('http://')}")
    number = ended.recv(1)[0]
    say(f"ending by {signal.Signals(number).name}")
    # The engine's threads may be in the middle of an answer: waiting for it is
    # what the agent did before it sent the signal.
    os._exit(0)


def parse():
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--model", metavar="PATH")
    parser.add_argument("--alias", metavar="NAME", action="append", default=[])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--context", type=int, metavar="TOKENS", default=4096, help="for each slot")
    parser.add_argument("--parallel", type=int, metavar="SLOTS", default=1)
    parser.add_argument("--cache-ram", type=int, metavar="MIB", default=0, help="for prompts of earlier requests")
    parser.add_argument("--pooling", choices=POOLING, help="for models that embed or rerank")
    arguments = parser.parse_args()
    if not arguments.version and not arguments.model:
        parser.error("--model is required")
    return arguments


def parameters(xllamacpp, arguments):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = arguments.model
    parameters.model_alias = set(arguments.alias)
    parameters.hostnames = [arguments.host]
    parameters.port = arguments.port
    # The engine divides its context among the slots.
    parameters.n_ctx = arguments.context * arguments.parallel
    parameters.n_parallel = arguments.parallel
    parameters.cache_ram_mib = arguments.cache_ram
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.ui = False
    if arguments.pooling:
        parameters.embedding = True
        # A text is pooled at once: all that a request may have goes through in one batch.
        parameters.n_batch = parameters.n_ubatch = arguments.context
    if arguments.pooling not in (None, "auto"):
        kinds = xllamacpp.llama_pooling_type
        parameters.pooling_type = getattr(kinds, "LLAMA_POOLING_TYPE_" + arguments.pooling.upper())
    # Nothing is fetched behind the agent's back.
    parameters.offline = True
    return parameters


def unreadable(path):
    """Says why a file can't be a model, where the engine would only say that it failed."""
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        return error.strerror
    return None if magic == b"GGUF" else "it is not a GGUF file"


def is_taken(host, port):
    # Asked beforehand: the engine says the same of a busy port and of a bad model.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def signals():
    """A socket that gets a byte for each signal that asks to end.

    Any thread of the engine may be the one that is interrupted, and a handler
    runs only when the main thread comes back to Python: so the main thread
    waits for the byte, which is written wherever the signal arrives.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    # Kept open for as long as the process lives.
    signals.writer = writer
    return reader


def say(words):
    try:
        print(f"{NAME}: {words}")
    except OSError:
        # Whoever reads the log may have gone first; that is no reason to go too.
        pass


def fail(reason):
    print(f"{NAME}: {reason}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
