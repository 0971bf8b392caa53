"""Ray Direct Transport over one-sided READs: `tensor_transport="HIXL"`. Importing this package registers the transport;
see docs/ray.md."""

from onesided.ray.actors import actor
from onesided.ray.metadata import HixlCommunicatorMetadata, HixlTransportMetadata
from onesided.ray.pool import TransferPool, pool, trim
from onesided.ray.registration import SUPPORTED_DEVICES, register_hixl_tensor_transport
from onesided.ray.registration import register as _register
from onesided.ray.statistics import object_stats, stats
from onesided.ray.transport import HixlFetchRequest, HixlTensorTransport
from onesided.ray.weights import WeightPublisher, WeightReader, WeightsHandle

_register(list(SUPPORTED_DEVICES))

__all__ = [
    "HixlCommunicatorMetadata",
    "HixlFetchRequest",
    "HixlTensorTransport",
    "HixlTransportMetadata",
    "TransferPool",
    "WeightPublisher",
    "WeightReader",
    "WeightsHandle",
    "actor",
    "object_stats",
    "pool",
    "register_hixl_tensor_transport",
    "stats",
    "trim",
]
