"""One-sided tensor transfers between accelerators: aligned pools, engine, Ray transport, simulated Ascend runtime."""

__version__ = "0.1.0"
