"""A fork has none of its parent's threads: it is told so instead of waiting for ever."""

import os

import pytest
from conftest import TOKEN, AdminApi, python

USED_BEFORE_THE_FORK = """
import os, sys, warnings, llmgw
warnings.simplefilter("ignore")
client = llmgw.Client(sys.argv[1], sys.argv[2])
client.nodes()
child = os.fork()
if child == 0:
    try:
        client.nodes()
    except llmgw.ForkError as error:
        print(error.code, isinstance(error, RuntimeError), len(llmgw.plan({"nodes": []}, {"models": []}).placements))
    sys.exit(3)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), len(client.nodes()))
"""

USED_AFTER_THE_FORK = """
import os, sys, llmgw
client = llmgw.Client(sys.argv[1], sys.argv[2])
child = os.fork()
if child == 0:
    print("child", len(client.nodes()))
    sys.exit(0)
_, status = os.waitpid(child, 0)
print("parent", os.waitstatus_to_exitcode(status), len(client.nodes()))
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def test_a_child_of_a_process_that_used_it_is_told_and_ends_well(admin: AdminApi) -> None:
    ended = python(USED_BEFORE_THE_FORK, admin.url, TOKEN)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("forked True 0\n3 1\n", "", 0)


def test_a_child_may_be_the_first_to_use_it(admin: AdminApi) -> None:
    ended = python(USED_AFTER_THE_FORK, admin.url, TOKEN)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("child 1\nparent 0 1\n", "", 0)
