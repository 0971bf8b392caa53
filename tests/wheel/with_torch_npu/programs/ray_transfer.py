"""A tensor on one simulated NPU is given to an actor on another."""

import os

# Here and in the workers: torch_npu does not import where no Ascend runtime is, and an actor starts the simulated one.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import ray
import torch

import onesided.ray


def start_simulator() -> None:
    """In an actor, before its torch_npu is imported."""
    import onesided.ascend_sim

    onesided.ascend_sim.enable()
    import torch_npu  # noqa: F401

    onesided.ray.register_hixl_tensor_transport(["npu", "cpu"])


@onesided.ray.actor(num_cpus=0)
class Owner:
    def __init__(self) -> None:
        start_simulator()

    @ray.method(tensor_transport="HIXL")
    def make(self) -> torch.Tensor:
        return torch.arange(100, dtype=torch.float32, device="npu:0")


@onesided.ray.actor(num_cpus=0)
class Reader:
    def __init__(self) -> None:
        start_simulator()
        torch.npu.set_device(1)

    def total(self, tensor: torch.Tensor) -> float:
        assert tensor.device.type == "npu"
        return float(tensor.cpu().sum())


ray.init(
    address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, logging_level="error",
    log_to_driver=False,
)  # fmt: skip
owner, reader = Owner.remote(), Reader.remote()
print(ray.get(reader.total.remote(owner.make.remote()), timeout=120), "over HIXL")
ray.shutdown()
