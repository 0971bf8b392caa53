"""Ends without ray.shutdown(), a pool, a reader and a fetch in its hands; prints where it listened."""

import ray
import torch

import onesided.ray
from onesided.ray import process

ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)


@ray.remote(enable_tensor_transport=True, num_cpus=0)
class Owner:
    @ray.method(tensor_transport="HIXL")
    def make(self) -> torch.Tensor:
        return torch.ones(1_000_000)

    def listens_on(self) -> str:
        return process.current().engine_id


owner = Owner.remote()
tensor = ray.get(owner.make.remote())
pool = onesided.ray.pool("cpu")
publisher = onesided.ray.WeightPublisher({"w": pool.empty((1000,)).fill_(1)})
reader = onesided.ray.WeightReader(publisher.handle)
reader.pull(10.0)
ref = ray.put([torch.ones(1000)], _tensor_transport="HIXL")
print(process.current().engine_id, ray.get(owner.listens_on.remote()))
