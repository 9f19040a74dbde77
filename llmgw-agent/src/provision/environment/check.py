"""Checks an environment that an engine is about to be started from, and says what it found.

    check.py ENGINE LOCK|- [files]

Each stage says all that is wrong with it, a line of JSON each behind a mark, and then that it is done. What follows a
stage that never says so is what ended the process. Nothing is changed and nothing is downloaded. With `files`, no code
of the environment is run: its versions and the libraries that its objects need are looked at, which takes seconds
instead of minutes.
"""

import glob
import importlib
import importlib.metadata
import json
import mmap
import os
import struct
import subprocess
import sys

MARK = "llmgw-check "
MOST = 20
# By engine: its package, what it imports when it starts, and how it says its version.
ENGINES = {
    "vllm": ("vllm", ["-m", "vllm.entrypoints.cli.main", "--version"]),
    "sglang": (
        "sglang",
        ["-c", "import sys; sys.argv = ['sglang', 'version']; from sglang.cli.main import main; main()"],
    ),
}


def say(stage, **what):
    print(MARK + json.dumps({"stage": stage, **what}), flush=True)


def cut(text):
    return " ".join(str(text).split())[:300]


def versions(lock):
    """What is installed, against what is pinned."""
    wrong = 0
    pinned = {}
    with open(lock, encoding="utf-8") as lines:
        for line in lines:
            if line.lstrip().startswith(("#", "--")) or "==" not in line:
                continue
            requirement, _, condition = line.partition(";")
            name, _, version = requirement.partition("==")
            name = name.partition("[")[0].strip()
            version = version.replace("\\", "").partition("--hash")[0].strip()
            pinned.setdefault(name, ([], bool(condition)))[0].append(version)
    for name, (wanted, conditional) in pinned.items():
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            have = None
        if have not in wanted and not (have is None and conditional):
            wrong += 1
            if wrong <= MOST:
                say("versions", package=name, want=wanted[0], have=have)
    return {"packages": len(pinned), "wrong": wrong}


def needs(path):
    """The libraries that an ELF object names, and where it looks for them first."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            return [], []
        offset, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        headers = [struct.unpack_from("<IIQQQQQQ", data, offset + size * index) for index in range(min(count, 256))]
        loads = [header for header in headers if header[0] == 1]
        entries = []
        for kind, _, start, _, _, length, _, _ in headers:
            if kind == 2:
                entries = [struct.unpack_from("<qQ", data, start + at) for at in range(0, min(length, 1 << 16) - 15, 16)]
        address = next((value for tag, value in entries if tag == 5), None)
        strings = None
        for _, _, start, virtual, _, length, _, _ in loads:
            if address is not None and virtual <= address < virtual + length:
                strings = start + address - virtual
        if strings is None:
            return [], []

        def text(at):
            end = data.find(b"\0", strings + at, strings + at + 4096)
            return data[strings + at:end].decode("utf-8", "replace") if end >= 0 else ""

        libraries = [text(value) for tag, value in entries if tag == 1]
        places = [text(value) for tag, value in entries if tag in (15, 29)]
        own = os.path.dirname(os.path.abspath(path))
        places = [place.replace("$ORIGIN", own).replace("${ORIGIN}", own) for place in ":".join(places).split(":") if place]
        return libraries, places


def known_libraries(site):
    """Every library that the loader of the machine knows, and every one that the environment brings along."""
    known = set()
    for loader in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            listed = subprocess.run([loader, "-p"], capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        known.update(line.split()[0] for line in listed.splitlines()[1:] if line.split())
        break
    for place in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", *glob.glob("/usr/lib/*-linux-gnu")):
        if os.path.isdir(place):
            known.update(name for name in os.listdir(place) if ".so" in name)
    # Torch loads those of its companions by their paths before anything asks for them.
    for directory, _, files in os.walk(site):
        known.update(name for name in files if ".so" in name)
    return known


def libraries(package, site):
    """What the compiled parts of the engine and of torch need, and nobody has."""
    known = known_libraries(site)
    own = [package, "sgl_kernel"] if package == "sglang" else [package]
    objects, wrong, gpu = [], set(), False
    for root in (*own, "torch"):
        for directory, _, files in os.walk(os.path.join(site, root)):
            objects += [(root, os.path.join(directory, name)) for name in files if ".so" in name]
    for root, path in objects:
        name = os.path.basename(path)
        if root == "torch" and not name.startswith(("libtorch", "libc10", "_C.")):
            # Others are loaded when they are asked for, and fail then if at all.
            continue
        try:
            wanted, places = needs(path)
        except (OSError, ValueError, struct.error) as error:
            say("libraries", object=os.path.relpath(path, site), unreadable=cut(error))
            continue
        gpu = gpu or (root != "torch" and any(one.startswith(("libcuda", "libtorch_cuda")) for one in wanted))
        for library in wanted:
            here = (os.path.exists(os.path.join(place, library)) for place in places)
            if library not in known and not any(here):
                wrong.add((library, os.path.relpath(path, site)))
    told = set()
    for library, path in sorted(wrong):
        if library not in told and len(told) < MOST:
            told.add(library)
            say("libraries", object=path, library=library)
    return {"objects": len(objects), "wrong": len({library for library, _ in wrong}), "gpu": gpu}


def torch_devices():
    """Whether torch finds the devices that it was built for."""
    torch = importlib.import_module("torch")
    cuda = torch.version.cuda
    available = torch.cuda.is_available()
    devices = torch.cuda.device_count() if available else 0
    return {
        "version": str(torch.__version__),
        "cuda": cuda,
        "hip": getattr(torch.version, "hip", None),
        "available": bool(available),
        "devices": int(devices),
    }


def compiled(package, site):
    """Imports the compiled part that the engine can't be without."""
    if package == "sglang":
        modules = ["sgl_kernel"]
    else:
        found = {os.path.basename(path).partition(".")[0] for path in glob.glob(os.path.join(site, package, "_C*.so"))}
        # A build for processors has one for each kind of them, and only one of these can be loaded.
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            plain = "avx512f" not in lines.read()
        order = ["_C_stable_libtorch", "_C_AVX2", "_C"] if plain else ["_C_stable_libtorch", "_C", "_C_AVX2"]
        modules = [f"{package}.{name}" for name in order if name in found][:1]
    if not modules:
        raise ImportError(f"{package} has no compiled module")
    importlib.import_module("torch")
    for module in modules:
        importlib.import_module(module)
    return {"modules": modules}


def version(package, question):
    """What the engine itself says that it is."""
    asked = subprocess.run(
        [sys.executable, "-I", *question], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=400
    )
    lines = [line for line in (asked.stdout + asked.stderr).splitlines() if line.strip()]
    if asked.returncode != 0:
        raise RuntimeError(f"status {asked.returncode}: {lines[-1] if lines else 'it printed nothing'}")
    # Warnings come on either output; its version is what has the version in it.
    wanted = importlib.metadata.version(package).partition("+")[0]
    words = [word for line in lines for word in line.split() if word.partition("+")[0] == wanted]
    return {"says": cut(words[0] if words else lines[-1] if lines else ""), "metadata": wanted}


def recorded(package):
    """What the installed package is recorded to be."""
    version = importlib.metadata.version(package).partition("+")[0]
    return {"says": version, "metadata": version}


def main():
    engine, lock = sys.argv[1], sys.argv[2]
    files = sys.argv[3:] == ["files"]
    package, question = ENGINES[engine]
    site = next((path for path in sys.path if path.endswith("-packages")), None)
    stages = [
        ("versions", (lambda: versions(lock)) if lock != "-" else dict),
        ("libraries", lambda: libraries(package, site)),
        ("torch", torch_devices),
        ("import", lambda: compiled(package, site)),
        ("version", lambda: version(package, question)),
    ]
    if files:
        stages = [*stages[:2], ("version", lambda: recorded(package))]
    for stage, check in stages:
        say(stage, begun=True)
        try:
            say(stage, done=True, **check())
        except Exception as error:
            say(stage, done=True, failed=cut(f"{type(error).__name__}: {error}"))


main()
