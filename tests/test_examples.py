"""Tests that the examples do what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

torch.set_num_threads(1)

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dynamics", ["learned", "gym"])
def test_another_controller_of_the_pendulum_is_told_from_the_usual_one(dynamics: str, capsys: pytest.CaptureFixture):
    auroc = example("pendulum").main(dynamics)
    assert auroc > 0.9
    assert "not normal: usual" in capsys.readouterr().out


def test_another_hand_on_the_cart_is_told_from_the_usual_one(capsys: pytest.CaptureFixture):
    areas = example("cartpole").main()
    assert areas["at random"] > 0.95
    assert areas["two steps late"] > 0.9
    assert "not normal: as usual" in capsys.readouterr().out
