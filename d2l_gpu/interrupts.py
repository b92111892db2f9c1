"""Ctrl-C, or a notebook's stop button, while a model trains: never in the middle of an update of the weights."""

import signal
import threading


class Updating:
    """`updating = Updating()`: what `with updating:` holds is not cut short, an interrupt comes at its end."""

    def __init__(self):
        self.inside, self.interrupted, self.handler = False, False, None

    def watch(self):
        """Take interrupts over, until `unwatch()`. Only the main thread gets any: in others this does nothing."""
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            self.handler = handler
            signal.signal(signal.SIGINT, self._interrupt)

    def unwatch(self):
        """Give interrupts back to who had them before."""
        if self.handler is not None:
            signal.signal(signal.SIGINT, self.handler)

    def _interrupt(self, number, frame):
        if self.inside:
            self.interrupted = True
        else:
            self.handler(number, frame)

    def __enter__(self):
        self.inside = True

    def __exit__(self, kind, error, trace):
        self.inside = False
        if self.interrupted:
            self.interrupted = False
            self.handler(signal.SIGINT, None)  # as if it came now; an error of the update itself is kept as its context
