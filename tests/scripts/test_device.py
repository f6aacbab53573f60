from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from scripts.device import NoDeviceError, _DrawnOnCpu, on_device

# The meta device holds no data, so what can be seen of a draw there is what the generator of the
# CPU has used up.

DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(2, 3),
    "randn": lambda: torch.randn((2, 3), dtype=torch.float64),
    "randint": lambda: torch.randint(0, 9, (2, 3)),
    "randperm": lambda: torch.randperm(7),
    "rand_like": lambda: torch.rand_like(torch.ones(2, 3)),
    "randn_like": lambda: torch.randn_like(torch.ones(2, 3), dtype=torch.float64),
    "randint_like": lambda: torch.randint_like(torch.ones(2, 3), 9),
    "normal_": lambda: torch.empty(2, 3).normal_(1.0, 2.0),
    "uniform_": lambda: torch.empty(2, 3).uniform_(-1.0, 1.0),
    "bernoulli_": lambda: torch.empty(2, 3).bernoulli_(0.3),
    "exponential_": lambda: torch.empty(2, 3).exponential_(),
    "random_": lambda: torch.empty(2, 3).random_(0, 9),
    "init": lambda: torch.nn.init.xavier_uniform_(torch.empty(2, 3)),
    "module": lambda: torch.nn.Linear(3, 2).weight,
}


def drawn(draw: Callable[[], torch.Tensor], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    with on_device(device):
        tensor = draw()
    return tensor, torch.get_rng_state()


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_uses_the_generator_of_the_cpu_and_lands_on_the_device(name: str) -> None:
    here, after_here = drawn(DRAWS[name], "cpu")
    there, after_there = drawn(DRAWS[name], "meta")
    assert (here.device.type, there.device.type) == ("cpu", "meta")
    assert (here.shape, here.dtype) == (there.shape, there.dtype)
    assert torch.equal(after_here, after_there)
    torch.manual_seed(0)
    assert not torch.equal(after_here, torch.get_rng_state())


SAMPLES: dict[str, Callable[[], torch.Tensor]] = {
    "bernoulli": lambda: torch.bernoulli(torch.full((2, 3), 0.3)),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 4),
    "poisson": lambda: torch.poisson(torch.full((2, 3), 2.0)),
}


@pytest.mark.parametrize("name", DRAWS | SAMPLES)
def test_a_draw_gives_the_numbers_that_the_cpu_gives(name: str) -> None:
    draw = (DRAWS | SAMPLES)[name]
    torch.manual_seed(0)
    plain = draw()
    torch.manual_seed(0)
    with _DrawnOnCpu(torch.device("cpu")):
        assert torch.equal(draw(), plain)


def test_a_draw_with_a_generator_a_device_or_a_gradient_of_its_own() -> None:
    with on_device("meta"):
        generator = torch.Generator().manual_seed(0)
        assert torch.randn(3, generator=generator).device.type == "meta"
        assert torch.randn(3, device="cpu").device.type == "cpu"
        leaf = torch.randn(3, requires_grad=True)
        assert (leaf.device.type, leaf.is_leaf, leaf.requires_grad) == ("meta", True, True)
    again = torch.Generator().manual_seed(0)
    torch.randn(3, generator=again)
    assert torch.equal(generator.get_state(), again.get_state())


def test_other_tensors_land_on_the_device_and_the_cpu_stays_as_it_is() -> None:
    with on_device("meta"):
        assert torch.arange(3).device.type == "meta"
    assert torch.arange(3).device.type == "cpu"
    with on_device("cpu"):
        assert torch.arange(3).device.type == "cpu"


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    message = f"no {name} device is available here: use --device cpu"
    with pytest.raises(NoDeviceError, match=message), on_device(name):
        pass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", DRAWS | SAMPLES)
def test_a_gpu_is_given_the_numbers_of_the_cpu(name: str) -> None:
    draw = (DRAWS | SAMPLES)[name]
    here, there = drawn(draw, "cpu")[0], drawn(draw, "cuda")[0]
    assert there.device.type == "cuda"
    assert torch.equal(here, there.cpu())
