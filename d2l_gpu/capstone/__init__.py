"""The training script that the last exercise of the book asks to make faster: `python -m d2l_gpu.capstone.slow`."""
