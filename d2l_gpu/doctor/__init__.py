"""What is wrong, in words: `report` on this machine, `explain` an error. Neither needs PyTorch to be importable."""
