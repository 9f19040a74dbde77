"""Makes the locks beside it: exact versions and digests of an engine and all that it depends on.

Run by hand when an engine's version is raised, with `uv` on the PATH and a package index configured for it:

    python3 make_locks.py

Each target is resolved by the command that stands in the head of its lock. Of the digests that come back, those of
wheels that the target can install are kept; a lock so says what is installed, and nothing else passes. Where wheels
come from is left out: that is the node's own configuration.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ENGINES = {"vllm": ("0.33.0", ["3.11", "3.12", "3.13"]), "sglang": ("0.5.23", ["3.11", "3.12"])}
# The oldest C library that all wheels of both engines accept: sglang itself and sglang-kernel are built for it.
GLIBC = (2, 34)
ARCHITECTURES = ["x86_64", "aarch64"]


def installs(wheel: str, minor: int, arch: str) -> bool:
    """Whether CPython 3.minor on this architecture takes a wheel of this file name."""
    pythons, abis, platforms = wheel.removesuffix(".whl").split("-")[-3:]
    abis = abis.split(".")

    def python(tag: str) -> bool:
        if tag == "py3" or re.fullmatch(r"py3\d+", tag) and int(tag[3:]) <= minor:
            return "none" in abis
        if not (found := re.fullmatch(r"cp3(\d+)", tag)):
            return False
        own = int(found[1])
        return own == minor if "abi3" not in abis else own <= minor

    def platform(tag: str) -> bool:
        if tag == "any":
            return True
        old = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12", "manylinux2014": "manylinux_2_17"}
        for name, glibc in old.items():
            tag = tag.replace(f"{name}_", f"{glibc}_")
        found = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{arch}", tag)
        return bool(found) and (int(found[1]), int(found[2])) <= GLIBC

    fits = any(abi in ("none", "abi3", f"cp3{minor}") for abi in abis)
    return fits and any(map(python, pythons.split("."))) and any(map(platform, platforms.split(".")))


def lock(engine: str, version: str, python: str, arch: str) -> str:
    platform = f"{arch}-manylinux_{GLIBC[0]}_{GLIBC[1]}"
    command = [
        "uv", "pip", "compile", "--generate-hashes", "--only-binary", ":all:", "--no-header",
        "--python-version", python, "--python-platform", platform,
    ]
    with tempfile.TemporaryDirectory() as scratch:
        wanted, found = Path(scratch, "engine.in"), Path(scratch, "pylock.toml")
        wanted.write_text(f"{engine}=={version}\n")
        subprocess.run([*command, "--quiet", "--format", "pylock.toml", "-o", found, wanted], check=True)
        packages = tomllib.loads(found.read_text())["packages"]
    lines, size = [], 0
    for package in sorted(packages, key=lambda package: package["name"]):
        name, version_of = package["name"], package["version"]
        # Markers that are left say what the target is: what it does not need is not in the answer.
        # The file's name is the last part of where it lies.
        wheels = [
            wheel
            for wheel in package.get("wheels", [])
            if installs(wheel["url"].rsplit("/", 1)[1].replace("%2B", "+"), int(python.split(".")[1]), arch)
        ]
        if not wheels:
            sys.exit(f"{name} {version_of} has no wheel for {platform}")
        digests = sorted({wheel["hashes"]["sha256"] for wheel in wheels})
        lines.append(f"{name}=={version_of} \\\n    " + " \\\n    ".join(f"--hash=sha256:{one}" for one in digests))
        size += max(wheel["size"] for wheel in wheels)
    uv = subprocess.run(["uv", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    head = [
        f"# {engine} {version} and all that it depends on, for Linux.",
        f"# Made by make_locks.py with uv {uv}:",
        f"#   echo {engine}=={version} | {' '.join(command)} -",
        "# of whose digests those of wheels for this target are kept.",
        f"# python: {python}",
        f"# architecture: {arch}",
        f"# glibc: {GLIBC[0]}.{GLIBC[1]}",
        f"# download: {size}",
    ]
    return "\n".join(head + lines) + "\n"


def main() -> None:
    directory = Path(__file__).parent / "locks"
    directory.mkdir(exist_ok=True)
    for engine, (version, pythons) in ENGINES.items():
        for python in pythons:
            for arch in ARCHITECTURES:
                path = directory / f"{engine}-{python}-{arch}.txt"
                path.write_text(lock(engine, version, python, arch))
                print(path.name)


if __name__ == "__main__":
    main()
