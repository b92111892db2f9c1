"""A model of a card and its queues, to play with: `QueueModel`. It needs nothing, not even torch, and measures nothing."""

from html import escape
from typing import NamedTuple

from .palette import CARD, CARD_FILL, HOST, HOST_FILL, INK, MOVE, PAPER, SOFT

ENGINES = ("compute", "to the card", "to the host")
_COLORS = {"compute": (CARD, CARD_FILL), "host": (HOST, HOST_FILL), "wait": (MOVE, "#ffffff")}
_COPY = (MOVE, "#f7e3da")
_WIDTH, _LEFT, _LANE = 480, 74, 40


class Span(NamedTuple):
    """Something that happens in a `lane`, from `start` to `end`; `share` is that of the engine, `early` a name (see `put`),
    `card` the number of the card."""
    lane: str
    name: str
    engine: str
    start: float
    end: float
    share: float = 1.0
    early: str = ""
    card: int = 0


class QueueModel:
    """A card with queues ("streams"), one part that computes and one copy engine for each direction. Times are in units of
    your choice: they go in and come out, and nothing is measured.

        model = d2l.QueueModel()
        side, main = model.stream("side"), model.stream("main")
        side.put("copy", 2, "to the card")
        main.wait_stream(side)
        main.put("step", 3)
        model                                   # draws the time line; model.end is 5

    The rules: the orders of a stream run one after another. An order begins when the host has put it, when what its stream
    waits for is done, and when its engine has room. To put an order takes the host `launch`. What is left out: an order never
    delays one that was put before it, and everything takes as long as you say, whatever else is running. `until` is where the
    time line ends at the earliest, so that two of them can be compared. Streams of different cards share the host alone.
    """

    def __init__(self, launch=0.0, until=0.0):
        self.launch, self.until, self.host, self.spans, self.streams = launch, until, 0.0, [], {}

    def stream(self, name, card=0):
        """The stream of that name, on the card with that number; it is made when it is first asked for."""
        return self.streams.setdefault(name, ModelStream(self, name, card))

    @property
    def end(self):
        """When the last thing ends."""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def early(self):
        """The orders that began before something they need had ended, as sentences."""
        return [f"{span.name} begins before {span.early} has ended" for span in self.spans if span.early]

    def _host_until(self, name, end, engine="host"):
        if end > self.host:
            self.spans.append(Span("host", name, engine, self.host, end))
            self.host = end

    def _room(self, card, engine, share, start, length):
        """The first time from `start` on at which the card's engine has room for `share` of it over `length`."""
        busy = [span for span in self.spans if (span.card, span.engine) == (card, engine)]

        def fits(begin):
            beside = [s for s in busy if s.start < begin + length - 1e-9 and begin < s.end - 1e-9]
            moments = [begin, *(s.start for s in beside if s.start > begin)]
            return all(sum(s.share for s in beside if s.start <= t < s.end) + share < 1 + 1e-9 for t in moments)

        return next(t for t in sorted({start, *(s.end for s in busy if s.end > start)}) if fits(t))

    # ------------------------------------------------------------------------------------------------------ as a picture
    def __repr__(self):
        lanes = {lane: [s for s in self.spans if s.lane == lane] for lane in self._lanes()}
        lines = [f"{lane}: " + ", ".join(f"{s.name} {s.start:g}-{s.end:g}" for s in spans) for lane, spans in lanes.items()]
        return "\n".join([*lines, *self.early, f"end: {self.end:g}"])

    def _lanes(self):
        return ["host"] * any(span.lane == "host" for span in self.spans) + list(self.streams)

    def _repr_html_(self):
        last = max(self.end, self.until)
        scale, lanes = (_WIDTH - _LEFT - 20) / (last or 1), self._lanes()
        bottom = 14 + _LANE * len(lanes)
        shapes = [f'<text x="12" y="{14 + _LANE * k + 21}" fill="{INK}">{escape(lane)}</text>' for k, lane in enumerate(lanes)]
        for span in self.spans:
            x, width = _LEFT + scale * span.start, max(2.0, scale * (span.end - span.start))
            height = 10 + 20 * span.share
            top = 14 + _LANE * lanes.index(span.lane) + 15 - height / 2
            stroke, fill = _COLORS.get(span.engine, _COPY)
            dash = ' stroke-dasharray="5 3"' if span.engine == "wait" or span.early else ""
            shapes.append(f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{fill}" '
                          f'stroke="{MOVE if span.early else stroke}" stroke-width="{3 if span.early else 1.5}"{dash}/>')
            label = span.name + " !" * bool(span.early)
            if width > 7.5 * len(label):
                shapes.append(f'<text x="{x + width / 2:.1f}" y="{top + height / 2 + 5:.1f}" text-anchor="middle" '
                              f'fill="{INK}">{escape(label)}</text>')
        shapes += [f'<text x="{x:g}" y="{bottom + 14}" text-anchor="{anchor}" fill="{SOFT}">{value}</text>'
                   for x, anchor, value in ((_LEFT, "start", "0"), (_WIDTH - 20, "end", f"{last:g}"))]
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 24}" width="100%" role="img" '
                f'font-family="Helvetica, Arial, sans-serif" font-size="14" style="max-width:{_WIDTH * 1.4:g}px">'
                f'<title>Time line. {escape(repr(self)).replace(chr(10), ". ")}</title>'
                f'<rect width="{_WIDTH}" height="{bottom + 24}" rx="10" fill="{PAPER}"/>{"".join(shapes)}</svg>')


class ModelStream:
    """A queue of a `QueueModel`; its methods are named after those of torch.cuda.Stream."""

    def __init__(self, model, name, card=0):
        self.model, self.name, self.card, self.free = model, name, card, 0.0

    def put(self, name, length, engine="compute", share=1.0, needs=None):
        """Put an order that takes `length` on `engine` ("compute", "to the card", "to the host"), of which it needs `share`,
        from 0 to 1. If it begins before the order called `needs` has ended, it is drawn as an error: nothing holds it back.
        Raises ValueError for an unknown engine, for a length below 0, and for a share that is not above 0 and at most 1."""
        model = self.model
        if engine not in ENGINES:
            raise ValueError(f"engine={engine!r} should be one of {', '.join(map(repr, ENGINES))}")
        if not length >= 0 or not 0 < share <= 1:
            raise ValueError(f"length={length} should be 0 or more, and share={share} above 0 and at most 1")
        model._host_until(name, model.host + model.launch)
        start = model._room(self.card, engine, share, max(model.host, self.free), length)
        self.free = start + length
        late = any(span.name == needs and span.end > start for span in model.spans)
        model.spans.append(Span(self.name, name, engine, start, self.free, share, needs if late else "", self.card))

    def record_event(self):
        """An event that happens when everything in this stream so far is done."""
        return self.free

    def wait_event(self, event):
        """What is put into this stream from now on waits for the event; the host does not."""
        self.free = max(self.free, event)

    def wait_stream(self, other):
        """The same, for everything that `other` holds now."""
        self.wait_event(other.record_event())

    def synchronize(self):
        """The host waits for this stream."""
        self.model._host_until("waits", max(self.model.host, self.free), "wait")
