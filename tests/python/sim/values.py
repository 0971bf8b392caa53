"""What npu:0 computes must equal what the CPU computes. A program: prints what differs, exits with 1 then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

DEVICE = "npu:0"
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
COMPLEX = (torch.complex64,)


class Checks:
    """Runs the same function on both devices and remembers where they differ."""

    def __init__(self) -> None:
        self.count = 0
        self.wrong: list[str] = []
        self.tolerance = 0.0

    def same(self, name: str, function: Callable[..., Any], *arguments: Any, tolerance: float = 0) -> None:
        self.count += 1
        self.tolerance = tolerance
        try:
            wanted = function(*arguments)
            got = function(*[a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in arguments])
            self._compare(got, wanted)
        except Exception as error:
            self.wrong.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")

    def true(self, name: str, condition: bool) -> None:
        self.count += 1
        if not condition:
            self.wrong.append(name)

    def _compare(self, got: Any, wanted: Any) -> None:
        if isinstance(wanted, torch.Tensor):
            assert got.device.type == "npu", f"the result is on {got.device}"
            torch.testing.assert_close(got.cpu(), wanted, rtol=self.tolerance, atol=self.tolerance, equal_nan=True)
            assert got.stride() == wanted.stride() or wanted.numel() <= 1, f"strides {got.stride()}, {wanted.stride()}"
        elif isinstance(wanted, (tuple, list)):
            assert len(got) == len(wanted)
            for one, other in zip(got, wanted, strict=True):
                self._compare(one, other)
        else:
            assert got == wanted, f"{got} is not {wanted}"


def sample(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    if dtype.is_complex:
        return torch.randn(*shape, dtype=dtype)
    return (torch.randn(*shape) * 10).to(dtype)


def memory_checks(checks: Checks) -> None:
    """What the runtime's own operators do, over all types: copies with strides, casts, broadcasting, empty tensors."""
    for dtype in (*DTYPES, *COMPLEX):
        x = sample(dtype, 4, 6)
        y = sample(dtype, 4, 6)
        views: dict[str, Callable[..., Any]] = {
            "there and back": lambda a: a,
            "clone": lambda a: a.clone(),
            "transpose": lambda a: a.t().contiguous(),
            "columns": lambda a: a[:, 1:4].contiguous(),
            "steps": lambda a: a[::2, ::3].contiguous(),
            "last column": lambda a: a[:, -1].contiguous(),
            "permute": lambda a: a.view(2, 2, 3, 2).permute(3, 1, 0, 2).contiguous(),
            "expand": lambda a: a[:1].expand(5, 3, 6).contiguous(),
            "unfold": lambda a: a.unfold(1, 3, 2).contiguous(),
            "diagonal": lambda a: a.diagonal().contiguous(),
            "as_strided": lambda a: torch.as_strided(a, (3, 3), (6, 2), 1).contiguous(),
            "empty": lambda a: a[:0].contiguous(),
            "empty in the middle": lambda a: a[:, 2:2].t().contiguous(),
            "scalar": lambda a: a[1, 2].clone(),
            "flip": lambda a: a.flip(0),
            "roll": lambda a: a.roll(1, 1),
            "repeat": lambda a: a.repeat(2, 1, 2),
        }
        for name, view in views.items():
            checks.same(f"{name} {dtype}", view, x)
        checks.same(f"cat {dtype}", lambda a, b: torch.cat([a, b], 1), x, y)
        checks.same(f"stack {dtype}", lambda a, b: torch.stack([a, b], 1), x, y)
        checks.same(f"equal {dtype}", lambda a, b: a == b, x, y)
        checks.same(f"write a column {dtype}", lambda a: _after(a.clone(), lambda c: c[:, 1].copy_(c[:, 2])), x)
        checks.same(f"write a broadcast {dtype}", lambda a: _after(a.clone(), lambda c: c[:, 1:3].copy_(c[:, :1])), x)
        checks.same(f"write steps {dtype}", lambda a, b: _after(a.clone(), lambda c: c[::2].copy_(b[1::2])), x, y)
        checks.same(f"fill {dtype}", lambda a: a.clone().fill_(1), x)
        checks.same(f"zero {dtype}", lambda a: _after(a.clone(), lambda c: c[1].zero_()), x)
        for other in DTYPES if not dtype.is_complex else COMPLEX:
            if other == torch.float64 and dtype != other:
                continue  # torch_npu itself makes float32 of it on this chip
            positive = x.abs() if dtype.is_floating_point and not other.is_floating_point else x
            checks.same(f"{dtype} as {other}", lambda a, other=other: a.to(other), positive)
            checks.same(f"{dtype} into {other}", lambda a, o=other: torch.zeros(6, 4, dtype=o, device=a.device).copy_(a.t()),
                        positive)  # fmt: skip


def _after(tensor: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    change(tensor)
    return tensor


def factory_checks(checks: Checks) -> None:
    for dtype in DTYPES:
        for name, make in {
            "zeros": lambda d, t: torch.zeros(3, 4, dtype=t, device=d),
            "ones": lambda d, t: torch.ones(3, 4, dtype=t, device=d),
            "full": lambda d, t: torch.full((3, 4), 1, dtype=t, device=d),
            "empty like": lambda d, t: torch.zeros_like(torch.empty(2, 0, 3, dtype=t, device=d)),
        }.items():
            checks.count += 1
            if not torch.equal(make(DEVICE, dtype).cpu(), make("cpu", dtype)):
                checks.wrong.append(f"{name} {dtype}")
    for arguments in ((7,), (1, 9, 2), (0, 1, 0.25), (5, 1, -1)):
        checks.true(
            f"arange{arguments}", torch.equal(torch.arange(*arguments, device=DEVICE).cpu(), torch.arange(*arguments))
        )
    checks.true("linspace", torch.equal(torch.linspace(0, 1, 5, device=DEVICE).cpu(), torch.linspace(0, 1, 5)))
    checks.true("eye", torch.equal(torch.eye(3, device=DEVICE).cpu(), torch.eye(3)))
    checks.true("item", torch.full((2,), 3.5, device=DEVICE)[1].item() == 3.5)
    checks.true("tolist", torch.arange(3, device=DEVICE).tolist() == [0, 1, 2])
    checks.true("repr", str(torch.ones(2, device=DEVICE)) == "tensor([1., 1.], device='npu:0')")


def arithmetic_checks(checks: Checks) -> None:
    for dtype in (*FLOATS, *INTEGERS):
        x, y = sample(dtype, 4, 6), sample(dtype, 4, 6)
        checks.same(f"add {dtype}", torch.add, x, y)
        checks.same(f"multiply {dtype}", torch.mul, x, y)
        checks.same(f"promote {dtype}", lambda a: a * 2.5 + 1, x)
        checks.same(f"in place {dtype}", lambda a, b: _after(a.clone(), lambda c: c.add_(b).mul_(2)), x, y)
        checks.same(f"sort {dtype}", lambda a: a.sort(1), x)
        checks.same(f"sum {dtype}", lambda a: a.sum(0), x)
        checks.same(f"max {dtype}", lambda a: a.max(1), x)
    f = torch.randn
    functions: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
        "matmul": (torch.matmul, (f(3, 5), f(5, 4))),
        "matmul transposed": (lambda a, b: a @ b.t(), (f(3, 5), f(4, 5))),
        "batched": (torch.bmm, (f(2, 3, 5), f(2, 5, 4))),
        "vector": (torch.matmul, (f(3, 5), f(5))),
        "linear": (functional.linear, (f(2, 5), f(3, 5), f(3))),
        "convolution": (functional.conv2d, (f(1, 2, 6, 6), f(3, 2, 3, 3))),
        "pooling": (lambda a: functional.max_pool2d(a, 2), (f(1, 2, 6, 6),)),
        "layer norm": (lambda a: functional.layer_norm(a, (4,)), (f(3, 4),)),
        "softmax": (lambda a: a.softmax(-1), (f(4, 4),)),
        "gelu": (functional.gelu, (f(4, 4),)),
        "cross entropy": (functional.cross_entropy, (f(4, 5), torch.tensor([0, 4, 2, 1]))),
        "embedding": (functional.embedding, (torch.tensor([[0, 2], [1, 0]]), f(3, 4))),
        "mean": (torch.mean, (f(3, 4),)),
        "norm": (torch.norm, (f(4),)),
        "cumsum": (lambda a: a.cumsum(1), (f(3, 4),)),
        "where": (lambda a, b: torch.where(a > b, a, 0.0), (f(3, 4), f(3, 4))),
        "clamp": (lambda a: a.clamp(0, 1), (f(4),)),
        "power": (lambda a: a**2, (f(4),)),
        "topk": (lambda a: a.topk(2), (f(6),)),
        "unique": (torch.unique, (torch.tensor([3, 1, 3, 2]),)),
        "nonzero": (torch.nonzero, (torch.tensor([[0, 1], [2, 0]]),)),
        "mask": (lambda a: a[a > 0], (f(5, 3),)),
        "index": (lambda a, i: a[i], (f(5, 3), torch.tensor([0, 4, -1]))),
        "index twice": (lambda a, i: a[i, i], (f(5, 5), torch.tensor([0, 2]))),
        "gather": (lambda a, i: a.gather(1, i), (f(3, 4), torch.tensor([[0, 1], [3, 2], [1, 1]]))),
        "scatter": (lambda a, i: a.scatter_add(0, i, a), (f(3, 3), torch.tensor([[0, 1, 2], [0, 0, 0], [2, 2, 2]]))),
        "index_put": (lambda a, i, v: a.clone().index_put_((i,), v), (f(5, 3), torch.tensor([0, 2]), f(2, 3))),
        "masked write": (lambda a: _after(a.clone(), lambda c: c.__setitem__(c > 0, 1.5)), (f(5, 3),)),
        "out grows": (lambda a: torch.sort(a, out=(a.new_empty(0), a.new_empty(0, dtype=torch.int64))), (f(6),)),
        "out strided": (lambda a: torch.mul(a, 2, out=a.new_empty(4, 3).t()), (f(3, 4),)),
        "view of integers": (lambda a: a.view(torch.int32), (f(4),)),
        "chunks": (lambda a: a.chunk(2, 1), (f(4, 4),)),
        "foreach": (lambda a, b: torch._foreach_add([a, b], 1.0), (f(3), f(2, 2))),
        "svd": (lambda a: torch.linalg.svd(a).S, (f(3, 3),)),
        "fft": (lambda a: torch.fft.fft(a).real.contiguous(), (f(8),)),
        "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), (f(2, 3, 4), f(2, 4, 5))),
    }
    for name, (function, arguments) in functions.items():
        checks.same(name, function, *arguments)

    # PyTorch's CPU has a fused kernel, npu tensors take the plain formula: equal up to rounding.
    heads = (f(1, 2, 4, 8), f(1, 2, 4, 8), f(1, 2, 4, 8))
    checks.same("attention", functional.scaled_dot_product_attention, *heads, tolerance=1e-5)


def gradient_checks(checks: Checks) -> None:
    """Derivatives, also of operators for which torch_npu has derivatives of its own."""

    def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: torch.Tensor) -> Any:
            leaves = [a.detach().requires_grad_(a.is_floating_point()) for a in arguments]
            result = function(*leaves)
            (result.real if result.is_complex() else result).square().sum().backward()
            return [leaf.grad for leaf in leaves if leaf.requires_grad]

        return run

    f = torch.randn
    index = torch.tensor([[0, 1], [3, 2], [1, 1]])
    functions: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
        "matmul": (torch.matmul, (f(3, 5), f(5, 4))),
        "batched matmul": (torch.matmul, (f(2, 3, 5), f(5, 4))),
        "linear": (functional.linear, (f(2, 5), f(3, 5), f(3))),
        "convolution": (functional.conv2d, (f(1, 2, 6, 6), f(3, 2, 3, 3))),
        "softmax": (lambda a: a.softmax(-1), (f(4, 4),)),
        "gather": (lambda a, i: a.gather(1, i), (f(3, 4), index)),
        "embedding": (lambda w, i: functional.embedding(i, w), (f(4, 3), index)),
        "layer norm": (lambda a, w, b: functional.layer_norm(a, (4,), w, b), (f(3, 4), f(4), f(4))),
        "batch norm": (lambda a: functional.batch_norm(a, None, None, training=True), (f(4, 3),)),
        "gelu": (functional.gelu, (f(4, 4),)),
        "silu": (functional.silu, (f(4, 4),)),
        "l1 loss": (lambda a: functional.l1_loss(a, torch.zeros_like(a)), (f(4, 4),)),
        "kl div": (lambda a: functional.kl_div(a.log_softmax(-1), torch.ones_like(a) / 4, reduction="sum"), (f(4, 4),)),
        "fft": (torch.fft.rfft, (f(8),)),
        "renorm": (lambda a: a.renorm(2, 0, 1.0), (f(3, 4),)),
        "repeat_interleave": (lambda a: a.repeat_interleave(2, 0), (f(3, 4),)),
        "dropout that keeps all": (lambda a: functional.dropout(a, 0.0), (f(3, 4),)),
        "cdist": (torch.cdist, (f(3, 4), f(5, 4))),
    }
    for name, (function, arguments) in functions.items():
        checks.same(f"gradient of {name}", gradients(function), *arguments, tolerance=1e-6)
    heads = (f(1, 2, 4, 8), f(1, 2, 4, 8), f(1, 2, 4, 8))
    checks.same("gradient of attention", gradients(functional.scaled_dot_product_attention), *heads, tolerance=1e-5)
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        for bias in (True, False):
            network = kind(3, 4, num_layers=2, bias=bias)

            def recurrent(x: torch.Tensor, model: torch.nn.Module = network) -> Any:
                model = model.to(x.device).zero_grad() or model
                output = model(x)[0]
                output.square().sum().backward()
                return [output.detach()] + [p.grad.detach() for p in model.parameters()]

            checks.same(f"{kind.__name__}, bias {bias}", recurrent, f(5, 2, 3), tolerance=1e-5)


def random_checks(checks: Checks) -> None:
    """Random numbers are the npu's own, and obey its seeds and states."""

    def draws() -> torch.Tensor:
        return torch.cat([
            torch.rand(5, device=DEVICE), torch.randn(5, device=DEVICE), torch.rand_like(torch.ones(3, device=DEVICE)),
            torch.randperm(4, device=DEVICE).float(), functional.dropout(torch.ones(9, device=DEVICE)),
            torch.empty(3, device=DEVICE).uniform_(), torch.multinomial(torch.ones(4, device=DEVICE), 3).float(),
        ]).cpu()  # fmt: skip

    torch.npu.manual_seed(1)
    first, second = draws(), draws()
    checks.true("draws differ", not torch.equal(first, second))
    torch.npu.manual_seed(1)
    checks.true("a seed repeats", torch.equal(draws(), first))
    state = torch.npu.get_rng_state(0)
    third = draws()
    torch.npu.set_rng_state(state, 0)
    checks.true("a state repeats", torch.equal(draws(), third))
    torch.manual_seed(5)
    cpu = torch.rand(3)
    torch.manual_seed(5)
    draws()
    checks.true("the CPU's numbers are left alone", torch.equal(torch.rand(3), cpu))
    own = torch.Generator(device=DEVICE).manual_seed(3)
    one = torch.rand(4, device=DEVICE, generator=own).cpu()
    checks.true(
        "a generator repeats", torch.equal(torch.rand(4, device=DEVICE, generator=own.manual_seed(3)).cpu(), one)
    )
    many = torch.rand(10000, device=DEVICE).cpu()
    checks.true("uniform", bool(many.min() >= 0 and many.max() < 1 and abs(many.mean() - 0.5) < 0.02))


def main() -> int:
    torch.manual_seed(0)
    torch.npu.set_device(0)
    checks = Checks()
    for group in (factory_checks, memory_checks, arithmetic_checks, gradient_checks, random_checks):
        try:
            group(checks)
        except Exception as error:
            checks.wrong.append(f"{group.__name__}: {type(error).__name__}: {str(error)[:500]}")
    print(f"{checks.count} checks, {len(checks.wrong)} wrong")
    for line in checks.wrong:
        print("  " + line)
    return 1 if checks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
