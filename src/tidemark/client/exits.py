"""What is still buffered when the interpreter ends is sent then.

`atexit` runs when a program ends, but not when a child of `multiprocessing` does: that one runs its
own finalizers and leaves. So a client that holds events is made known to both.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Protocol


class Finishing(Protocol):
    """A client that holds events."""

    def finish_at_exit(self) -> None:
        """Deliver what is buffered, or say in the log what could not be."""
        ...


# A strong reference on purpose: buffered events must outlive the last name of their client.
_open: dict[int, Finishing] = {}
_registered_pid: int | None = None


def expect(client: Finishing) -> None:
    """Have this client finish at the end of the process, unless it is forgotten before."""
    global _registered_pid
    if _registered_pid != os.getpid():
        # Events buffered before a fork are the parent's to deliver.
        _open.clear()
        if _registered_pid is None:
            atexit.register(_finish_all)
        _registered_pid = os.getpid()
        _register_with_multiprocessing()
    _open[id(client)] = client


def forget(client: Finishing) -> None:
    """This client holds nothing any more."""
    if _registered_pid == os.getpid():
        _open.pop(id(client), None)


def _register_with_multiprocessing() -> None:
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _finish_all, exitpriority=10)


def _finish_all() -> None:
    if _registered_pid == os.getpid():
        while _open:
            _, client = _open.popitem()
            client.finish_at_exit()
