"""One version of everything or an error; whatever a publisher does meanwhile."""

import threading

import pytest
import torch

from onesided import weights


@pytest.fixture
def closing():
    opened = []
    yield lambda thing: opened.append(thing) or thing
    for thing in reversed(opened):
        thing.close()


def publish(closing, tensors, **options):
    publication = closing(weights.publish(tensors, **options))
    with publication.update():
        pass
    return publication


def test_an_uncommitted_version_is_not_read(closing):
    publication = closing(weights.publish({"w": torch.ones(8)}))
    mine = {"w": torch.zeros(8)}
    subscription = closing(weights.subscribe(mine, at=[publication.handle]))
    with pytest.raises(weights.WeightsError, match=r"committed nothing yet.*not usable"):
        subscription.update(0.1)
    assert not subscription.usable
    assert mine["w"].sum() == 0
    publication.begin_update()
    with pytest.raises(weights.WeightsError, match=r"ranks \[0\] are in an update"):
        subscription.update(0.1)
    assert publication.commit() == 1
    assert subscription.update(10).version == 1
    assert torch.equal(mine["w"], torch.ones(8))


def test_ranks_that_differ_in_version_are_waited_for(closing):
    parts = [{"w": weights.Slice(torch.full((4,), float(rank)), (8,), (4 * rank,))} for rank in range(2)]
    publications = [closing(weights.publish(part, rank=rank, world=2)) for rank, part in enumerate(parts)]
    for publication in publications:
        with publication.update():
            pass
    mine = {"w": torch.zeros(8)}
    subscription = closing(weights.subscribe(mine, at=[p.handle for p in publications]))
    assert subscription.update(10).version == 1
    with publications[0].update():
        pass
    with pytest.raises(weights.WeightsError, match=r"different versions {0: 2, 1: 1}.*as they were"):
        subscription.update(0.1)
    assert subscription.version == 1
    with publications[1].update():
        pass
    assert subscription.update(10, newer_than=1).version == 2


def test_a_version_of_the_callers_and_only_a_greater_one(closing):
    publication = closing(weights.publish({"w": torch.ones(8)}))
    with publication.update(version=700):
        pass
    assert publication.version == 700
    publication.begin_update()
    with pytest.raises(weights.WeightsError, match=r"700 is not greater than 700"):
        publication.commit(700)
    assert publication.commit(701) == 701
    with pytest.raises(weights.WeightsError, match=r"without begin_update"):
        publication.commit()


def test_a_reader_never_keeps_a_mixture(closing):
    """A writer that writes all the time: what update() accepts is one version, all over."""
    tensors = {f"p{i}": torch.zeros(4096) for i in range(64)}
    publication = publish(closing, tensors)
    mine = {name: torch.zeros(4096) for name in tensors}
    subscription = closing(weights.subscribe(mine, at=[publication.handle]))
    stop = threading.Event()
    written = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with publication.update():
                for tensor in tensors.values():
                    tensor.add_(1)
            written.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        accepted = 0
        for _ in range(30):
            written.wait(10)
            try:
                subscription.update(2)
            except weights.WeightsError:
                assert not subscription.usable or accepted
                continue
            accepted += 1
            values = {float(value) for tensor in mine.values() for value in (tensor.min(), tensor.max())}
            assert values == {float(subscription.version - 1)}
    finally:
        stop.set()
        writer.join()
    update = subscription.update(10)
    assert {float(tensor.mean()) for tensor in mine.values()} == {float(update.version - 1)}


def test_a_publisher_that_restarts_is_planned_anew(closing, tmp_path):
    mine = {"w": torch.zeros(8)}
    first = publish(closing, {"w": torch.ones(8)}, at=tmp_path)
    subscription = closing(weights.subscribe(mine, at=tmp_path))
    subscription.update(10)
    first.close()
    with pytest.raises(weights.WeightsError, match=r"rank 0.*Restart rank 0"):
        subscription.update(0.3)
    # The new one lies otherwise: two ranks.
    again = [
        closing(
            weights.publish(
                {"w": weights.Slice(torch.full((4,), 5.0 + rank), (8,), (4 * rank,))}, rank=rank, world=2, at=tmp_path
            )
        )
        for rank in range(2)
    ]
    for publication in again:
        with publication.update(version=9):
            pass
    assert subscription.update(10).version == 9
    assert subscription.plans == 2
    assert mine["w"].tolist() == [5.0] * 4 + [6.0] * 4


@pytest.mark.parametrize(
    "theirs, mine, why",
    [
        ({"a": torch.ones(4)}, {"b": torch.ones(4)}, "'b' is published by no rank"),
        ({"a": torch.ones(4)}, {"a": torch.ones(5)}, r"'a' has shape \(5,\) here and \(4,\)"),
        (
            {"a": weights.Slice(torch.ones(2), (4,), (1,))},
            {"a": torch.ones(4)},
            "2 of the 4 elements .* held by no rank",
        ),
        (
            {"a": [weights.Slice(torch.ones(3), (4,), (0,)), weights.Slice(torch.ones(2), (4,), (2,))]},
            {"a": torch.ones(4)},
            "overlap",
        ),
    ],
)
def test_layouts_that_do_not_fit_are_refused_by_name(closing, theirs, mine, why):
    publication = publish(closing, theirs)
    with pytest.raises(weights.WeightsError, match=why):
        weights.subscribe(mine, at=[publication.handle])


def test_ranks_that_describe_a_name_differently_are_refused(closing):
    publications = [
        closing(weights.publish({"w": torch.ones(4, dtype=dtype)}, rank=rank, world=2))
        for rank, dtype in enumerate([torch.float32, torch.float64])
    ]
    with pytest.raises(weights.WeightsError, match=r"'w' is .* at rank 0 and .* at rank 1"):
        weights.subscribe({"w": torch.ones(4)}, at=[p.handle for p in publications])
    with pytest.raises(weights.WeightsError, match=r"handles of ranks \[0\], expected one of each of 2"):
        weights.subscribe({"w": torch.ones(4)}, at=[publications[0].handle])
    with pytest.raises(weights.WeightsError, match=r"not a handle"):
        weights.subscribe({"w": torch.ones(4)}, at=[b"something"])


def test_the_first_update_restores_everything_buffers_and_tied_weights_included(closing):
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight
            self.norm = torch.nn.BatchNorm1d(4)

    trainer, rollout = Tied(), Tied()
    with torch.no_grad():
        for value in rollout.state_dict(keep_vars=True).values():
            value.copy_(torch.randn(value.shape) * 100)
    publication = publish(closing, trainer)
    closing(weights.subscribe(rollout, at=[publication.handle])).update(10)
    for name, value in trainer.state_dict().items():
        assert torch.equal(value, rollout.state_dict()[name]), name
    assert rollout.head.weight is rollout.embed.weight


def test_a_publisher_proves_what_it_publishes(closing):
    model = torch.nn.Linear(4, 4)
    publication = publish(closing, model)
    assert publication.verify(model) == 0
    model.weight = torch.nn.Parameter(model.weight.detach() + 1)
    with pytest.raises(weights.WeightsError, match=r"'weight' of rank 0.*replaced after publish"):
        publication.verify(model)
    model.bias = torch.nn.Parameter(model.bias.detach().clone())
    with pytest.raises(weights.WeightsError, match=r"'weight'"):
        publication.verify(model)


def test_a_tensor_that_moved_is_not_committed(closing):
    tensor = torch.ones(4)
    publication = publish(closing, {"w": tensor})
    publication.begin_update()
    tensor.data = torch.zeros(4)
    with pytest.raises(weights.WeightsError, match=r"'w' of rank 0 has been moved"):
        publication.commit()
    mine = {"w": torch.zeros(4)}
    with pytest.raises(weights.WeightsError, match=r"in an update"):
        closing(weights.subscribe(mine, at=[publication.handle])).update(0.1)


def test_an_update_leaves_nothing_behind(closing):
    publication = publish(closing, {"w": torch.ones(1 << 16)})
    before = threading.active_count()
    subscription = weights.subscribe({"w": torch.zeros(1 << 16, dtype=torch.bfloat16)}, at=[publication.handle])
    for _ in range(20):
        with publication.update():
            pass
        subscription.update(10)
    subscription.close()
    subscription.close()
    assert threading.active_count() == before


def test_an_update_waits_for_who_reads_and_not_for_ever(closing):
    publication = closing(weights.publish({"w": torch.ones(8)}, wait_for_readers_s=0.2))
    with publication.update():
        pass
    mine = {"w": torch.zeros(8)}
    subscription = closing(weights.subscribe(mine, at=[publication.handle], reader=3))
    assert subscription.update(10).version == 1
    assert publication._marks.sum() == 0, "a reader that is done leaves no mark"
    publication._marks[5] = 77  # a reader that died while it read
    with publication.update():
        assert publication.readers_failed == 1
    assert publication._marks.sum() == 0
    publication._wait_for_readers_s = 60
    publication._marks[5] = 78
    waiting = threading.Thread(target=publication.begin_update)
    waiting.start()
    assert subscription.update(10).version == 2
    publication._marks[5] = 0
    waiting.join()
    assert publication.readers_failed == 1
    publication.commit()
    assert subscription.update(10).version == 3


def test_thousands_of_experts_are_one_transfer_from_each_rank(closing):
    names = [f"experts.{i}.weight" for i in range(4096)]
    publications = []
    for rank in range(2):
        stacked = torch.arange(2048 * 8, dtype=torch.float32).reshape(2048, 8) + rank
        part = weights.experts(stacked, names[rank * 2048 : (rank + 1) * 2048])
        publications.append(publish(closing, part, rank=rank, world=2))
    mine = torch.zeros(4096, 8)
    subscription = closing(
        weights.subscribe(weights.experts(mine, names), at=[publication.handle for publication in publications])
    )
    update = subscription.update(30)
    assert [len(phase.reads) for phase in subscription.plan.phases] == [2]
    assert update.bytes_moved == mine.nbytes
    expected = torch.arange(2048 * 8, dtype=torch.float32).reshape(2048, 8)
    assert torch.equal(mine, torch.cat([expected, expected + 1]))
