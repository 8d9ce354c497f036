"""What an agent's process may allocate is for what it does, and not for the stacks of its threads."""

from __future__ import annotations

import subprocess
import sys

GIB = 1 << 30
CONNECTIONS = 256
LANES = 88

ASK = """
import sys, threading
from tdcs.node.agent.agent_command import limit_memory
limit_memory(int(sys.argv[1]))
stop = threading.Event()
for _ in range(int(sys.argv[2])):
    threading.Thread(target=stop.wait, daemon=True).start()
print(threading.active_count() - 1)
"""


def test_as_many_threads_as_an_agent_has_leave_most_of_its_memory_to_other_things() -> None:
    words = [sys.executable, "-c", ASK, str(GIB), str(CONNECTIONS + LANES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert int(done.stdout or 0) == CONNECTIONS + LANES, done.stderr
