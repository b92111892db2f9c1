"""Ctrl-C, or a notebook's stop button, while a model trains: never in the middle of an update of the weights."""

import signal
import threading


class Updating:
    """`with updating:` puts an interrupt off to the end of the block, so that no update of the weights is cut short."""

    def __init__(self):
        self.inside, self.interrupted, self.handlers = False, False, []

    def watch(self):
        """Take interrupts over, until `unwatch()`; other threads than the main one never get any."""
        handler = signal.getsignal(signal.SIGINT)
        watched = callable(handler) and threading.current_thread() is threading.main_thread()
        self.handlers.append(handler if watched else None)
        if watched:
            signal.signal(signal.SIGINT, self._interrupt)

    def unwatch(self):
        """Give interrupts back to who had them before."""
        handler = self.handlers.pop()
        if handler is not None:
            signal.signal(signal.SIGINT, handler)

    def _interrupt(self, number, frame):
        if self.inside:
            self.interrupted = True
        else:
            self.handlers[0](number, frame)

    def __enter__(self):
        self.inside = True

    def __exit__(self, kind, error, trace):
        self.inside = False
        if self.interrupted:
            self.interrupted = False
            if kind is None:
                raise KeyboardInterrupt


updating = Updating()
