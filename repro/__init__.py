"""Lock, build, record, sign and replay a PyTorch training run."""

__version__ = "0.1.0"
