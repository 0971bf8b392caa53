"""Weights from any sharding to any other: each reader takes the slices that it needs with one-sided READs, each byte
once, and gets one version of everything.

    publication = onesided.weights.publish(model, rank=rank, world=world, at=meeting)   # each trainer rank
    subscription = onesided.weights.subscribe(model, at=meeting)                        # each rollout rank
    with publication.update(): optimizer.step()                                         # a new version
    subscription.update()                                                               # straight into its parameters
"""

from onesided.weights.boxes import Slice, experts, fused
from onesided.weights.errors import WeightsError
from onesided.weights.publication import Publication, publish
from onesided.weights.subscription import Subscription, Update, subscribe

__all__ = [
    "Publication",
    "Slice",
    "Subscription",
    "Update",
    "WeightsError",
    "experts",
    "fused",
    "publish",
    "subscribe",
]
