"""Where would these models go, and why not? Asks no cluster: a plan depends on what it is given alone."""

import llmgw

engines = {"llamacpp": {"state": "installed", "version": "1", "variant": "wheel"}}
box = {"id": "node-0197c2a4f0e17b6c9a3d5e8f10213243", "hostname": "box", "engines": engines}
fleet = {"nodes": [box | {"memory_allocatable": "16GiB", "disk_free": "1TB"}]}
small = {"name": "small", "source": "file:/models/small.gguf", "profiles": [{"memory": "6GiB"}]}
big = {"name": "big", "source": "file:/models/big.gguf", "profiles": [{"memory": "400GB"}]}

plan = llmgw.plan(fleet, {"models": [small, big]})
for placement in plan.placements:
    print(f"{placement.model} goes to {placement.hostname}")
for report in plan.reports:
    if report.fits is None:
        print(report)
