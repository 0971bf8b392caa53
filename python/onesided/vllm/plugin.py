"""vLLM's entry point group `vllm.general_plugins` calls register() in every process of vLLM."""

from __future__ import annotations


def register() -> None:
    """Adds the weight transfer backend `onesided`; a second call has no effect. Imports nothing that costs."""
    from vllm.distributed.weight_transfer import factory

    worker = factory.WeightTransferEngineFactory
    if "onesided" in worker._registry:
        return
    if hasattr(factory, "WeightTransferTrainerFactory"):  # vllm 0.29 and later have the trainer's side too
        worker.register_engine("onesided", "onesided.vllm.weights", "OnesidedWeightTransferEngine")
        trainer = factory.WeightTransferTrainerFactory
        trainer.register_engine("onesided", "onesided.vllm.weights", "OnesidedTrainerWeightTransferEngine")
    else:
        worker.register_engine("onesided", "onesided.vllm.weights_0_18", "OnesidedWeightTransferEngine")
