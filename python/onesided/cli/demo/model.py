"""The demo's model: the tensors of Qwen2.5-0.5B, with their real names, shapes and dtype. The values are seeded, so
nothing is downloaded and every run moves the same bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

NAME = "Qwen2.5-0.5B"
LAYERS, HIDDEN, INTERMEDIATE, KEY_VALUE, VOCABULARY = 24, 896, 4864, 128, 151936
BYTES_PER_VALUE = 2  # bfloat16

Shape = tuple[int, ...]


def shapes() -> Iterator[tuple[str, Shape]]:
    """(name, shape) of every tensor, in the checkpoint's order. The output head is tied to the embedding."""
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (HIDDEN,)
        for name, rows in (("q_proj", HIDDEN), ("k_proj", KEY_VALUE), ("v_proj", KEY_VALUE)):
            yield f"{at}.self_attn.{name}.weight", (rows, HIDDEN)
            yield f"{at}.self_attn.{name}.bias", (rows,)
        yield f"{at}.self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        yield f"{at}.post_attention_layernorm.weight", (HIDDEN,)
        yield f"{at}.mlp.gate_proj.weight", (INTERMEDIATE, HIDDEN)
        yield f"{at}.mlp.up_proj.weight", (INTERMEDIATE, HIDDEN)
        yield f"{at}.mlp.down_proj.weight", (HIDDEN, INTERMEDIATE)
    yield "model.norm.weight", (HIDDEN,)


def total_bytes() -> int:
    total = 0
    for _, shape in shapes():
        count = 1
        for length in shape:
            count *= length
        total += count * BYTES_PER_VALUE
    return total


def make(device: str, seed: int) -> dict[str, torch.Tensor]:
    """Every tensor on `device`, in memory from the current pool, filled with values drawn from `seed`."""
    import torch

    weights = {name: torch.empty(shape, dtype=torch.bfloat16, device=device) for name, shape in shapes()}
    with ThreadPoolExecutor(2) as pool:
        drawn = pool.map(_draw, ((seed, index) for index in range(len(weights))), map(torch.numel, weights.values()))
        for tensor, bits in zip(weights.values(), drawn, strict=True):
            tensor.copy_(torch.from_numpy(bits).view(torch.bfloat16).view(tensor.shape))
    return weights


def _draw(seed: tuple[int, int], count: int) -> np.ndarray:
    """`count` bfloat16 values as their bits: any sign and mantissa, magnitudes from 1/128 to 1/8, as weights have."""
    raw = np.random.default_rng(seed).integers(0, 1 << 64, size=-(-count // 4), dtype=np.uint64)
    bits = raw.view(np.uint16)[:count]
    return ((bits & 0x81FF) | 0x3C00).view(np.int16)


def update(weights: Mapping[str, torch.Tensor], step: int) -> None:
    """Changes every value in place, like a training step: low bits of the mantissa, so that all values stay finite."""
    import torch

    for tensor in weights.values():
        tensor.view(torch.int16).bitwise_xor_(1 + step % 127)


def checksums(weights: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """A CRC of each tensor's bytes; it depends on every bit and on the order."""
    import torch

    def of(tensor: torch.Tensor) -> int:
        return zlib.crc32(tensor.cpu().view(torch.uint8).numpy().data)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(weights, pool.map(of, weights.values()), strict=True))
