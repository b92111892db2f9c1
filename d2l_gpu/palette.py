"""The colors of the book's pictures, in one place: the drawings (tools/pictures.py), the curves, the results.

A picture brings its own background, so that it reads in light and dark mode alike. It imports nothing, so that the book's
HTML can be built without torch. Every color of `COLORS` has at least 4.5 to 1 against the paper (WCAG 2.1, 1.4.3).
"""

PAPER, INK, SOFT = "#fbfaf7", "#1f2933", "#52606d"
HOST, HOST_FILL = "#2b5c8a", "#d6e6f5"  # the CPU and main memory: blue
CARD, CARD_FILL = "#276749", "#d3ecdf"  # a GPU and its memory: green
MOVE = "#b7471d"  # copies and waits: orange

COLORS = (HOST, MOVE, CARD, "#7a3b8f", "#7d5f12", "#a3246b")  # of curves, in turn
