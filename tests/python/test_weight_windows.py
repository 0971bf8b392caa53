"""A stream of weights from one process to several readers: every byte, every failure, nothing left."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

import pytest

# Imported here, once, so that the setting it needs does not stay for other tests.
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    torch = pytest.importorskip("torch", reason="weights are torch tensors: pip install onesided[ray]")

from onesided.engine import Engine
from onesided.weight_windows import Pulse, WeightStreamError, WindowReader, WindowSender

SEED = 20261207


def weights(count: int) -> list[tuple[str, torch.Tensor]]:
    """Tensors of many types and shapes: empty, scalar, not contiguous, views of one storage, larger than a window."""
    draw, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    found = [
        ("empty", torch.empty(0, 4)),
        ("scalar", torch.tensor(3.5)),
        ("transposed", torch.randn(40, 30, generator=generator).t()),
        ("large", torch.randn(300, 200, generator=generator)),
    ]
    shared = torch.randn(64, 64, generator=generator)
    found += [("tied.a", shared), ("tied.b", shared), ("part", shared[3:9])]
    kinds = (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int64)
    for number in range(count):
        shape = [draw.randrange(1, 40) for _ in range(draw.randrange(1, 4))]
        found.append((f"w{number}", (torch.randn(shape, generator=generator) * 50).to(draw.choice(kinds))))
    return found


async def collect(reader: WindowReader) -> list[tuple[str, torch.Tensor]]:
    return [(name, tensor.clone()) async for name, tensor in reader.receive()]


@pytest.mark.parametrize("window_bytes", [1, 4096, 1 << 30])
@pytest.mark.parametrize("readers", [1, 3])
def test_every_reader_gets_every_tensor_once_and_in_order(window_bytes: int, readers: int) -> None:
    source, others = Engine("127.0.0.1:0"), [Engine("127.0.0.1:0") for _ in range(readers)]
    pulses = [Pulse(one) for one in others]
    sent = weights(40)
    for one in others:
        one.connect(source.id)
        source.connect(one.id)

    async def stream(version: int) -> list[list[tuple[str, torch.Tensor]]]:
        described = {one.id: pulse.described for one, pulse in zip(others, pulses, strict=True)}
        sender = WindowSender(source, described, window_bytes, version)
        reading = [
            collect(WindowReader(one, source.id, pulse, version=version))
            for one, pulse in zip(others, pulses, strict=True)
        ]
        total, *received = await asyncio.gather(sender.send(iter(sent)), *reading)
        assert total == sum(one.nbytes for _, one in sent)
        return received

    regions = source.stats()["regions"], [one.stats()["regions"] for one in others]
    for version in (7, 8):  # the first version is not 1: a resumed run
        for received in asyncio.run(stream(version)):
            assert [name for name, _ in received] == [name for name, _ in sent]
            for (name, found), (_, wanted) in zip(received, sent, strict=True):
                assert found.dtype == wanted.dtype and found.shape == wanted.shape, name
                assert torch.equal(found, wanted), name
    assert (source.stats()["regions"], [one.stats()["regions"] for one in others]) == regions
    for one in (source, *others):
        one.close()


def test_another_version_is_refused() -> None:
    with Engine("127.0.0.1:0") as source, Engine("127.0.0.1:0") as other:
        pulse = Pulse(other)
        other.connect(source.id)
        source.connect(other.id)

        async def stream() -> list[object]:
            sender = WindowSender(source, {other.id: pulse.described}, 4096, 3)
            reader = WindowReader(other, source.id, pulse, version=4)
            return await asyncio.gather(sender.send(iter(weights(3))), collect(reader), return_exceptions=True)

        sent, received = asyncio.run(stream())
        assert isinstance(received, WeightStreamError) and "version 3" in str(received)
        assert isinstance(sent, WeightStreamError) and other.id in str(sent)


_READER = """
import sys
from onesided.engine import Engine
from onesided.weight_windows import Pulse
engine = Engine("127.0.0.1:0")
pulse = Pulse(engine)
print(engine.id, pulse.described.hex(), flush=True)
sys.stdin.read()
"""


def test_a_killed_reader_ends_the_stream() -> None:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    child = subprocess.Popen(
        [sys.executable, "-c", _READER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        peer, pulse = child.stdout.readline().split()
        with Engine("127.0.0.1:0") as source:
            source.connect(peer)

            async def stream() -> None:
                sending = asyncio.create_task(
                    WindowSender(source, {peer: bytes.fromhex(pulse)}, 4096, None).send(iter(weights(30)))
                )
                await asyncio.sleep(0)  # the first windows are offered
                child.kill()
                await asyncio.wait_for(sending, 10)

            with pytest.raises(WeightStreamError, match=peer):
                asyncio.run(stream())
    finally:
        child.kill()
        child.wait()
