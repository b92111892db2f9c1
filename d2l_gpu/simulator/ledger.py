"""The books: what a program asked of the hardware."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter


class Ledger:
    """Counts of copies, waits and operators.

        copies   direction ("H2D", "D2H", "D2D") -> number of copies
        bytes    direction -> bytes copied
        syncs    cause ("item", "H2D", "synchronize", ...) -> times the host had to wait
        kernels  device ("cuda:0") -> operators that computed something there
    """

    def __init__(self):
        self.reset()

    def reset(self):
        """Set every count to zero."""
        self.copies = Counter(H2D=0, D2H=0, D2D=0)
        self.bytes = Counter(H2D=0, D2H=0, D2D=0)
        self.syncs = Counter()
        self.kernels = Counter()

    def __repr__(self):
        lines = [
            f"{kind}: {number} copies, {self.bytes[kind]:,} bytes"
            for kind, number in self.copies.items()
        ]
        causes = ", ".join(f"{cause} {number}" for cause, number in sorted(self.syncs.items()))
        waits = f"waits of the host: {self.syncs.total()}"
        lines.append(f"{waits} ({causes})" if causes else waits)
        lines += [f"operators on {device}: {n}" for device, n in sorted(self.kernels.items())]
        return "\n".join(lines)


class Books:
    """The ledger of a whole simulation, and those that are recording a part of it."""

    def __init__(self):
        self.whole = Ledger()
        self._open = [self.whole]
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def record(self):
        """Yield a ledger of what happens in the body of the `with` statement."""
        ledger = Ledger()
        with self._lock:
            self._open.append(ledger)
        try:
            yield ledger
        finally:
            with self._lock:  # by identity: two ledgers with equal counts are still two
                self._open = [entry for entry in self._open if entry is not ledger]

    def computed(self, device_name: str):
        """Enter one operator on a device."""
        with self._lock:
            for ledger in self._open:
                ledger.kernels[device_name] += 1

    def waited(self, cause: str):
        """Enter one wait of the host for a device."""
        with self._lock:
            for ledger in self._open:
                ledger.syncs[cause] += 1

    def copied(self, kind: str, nbytes: int, cause: str | None = None):
        """Enter one copy, and the wait that it costs if `cause` names one."""
        with self._lock:
            for ledger in self._open:
                ledger.copies[kind] += 1
                ledger.bytes[kind] += nbytes
        if cause:
            self.waited(cause)
