"""The names that inference frameworks use for 2 MiB alignment, over aligned pools: sglang.py, vllm_ascend.py."""
