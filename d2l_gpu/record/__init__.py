"""Measures this machine within a budget of minutes: `python -m d2l_gpu.record --minutes 8` (see __main__.py)."""
