"""Operations of a plan against the matrix products that real models make."""

import pytest
import torch
from plan_shapes import tiny_model
from torch.utils.flop_counter import FlopCounterMode

from policy.plan_work import forward_operations


@pytest.mark.parametrize(("kind", "kv_heads"), [("llama", 4), ("qwen2", 2)])
def test_a_real_model_makes_the_operations_that_were_counted(tmp_path, kind, kv_heads):
    model, shape = tiny_model(tmp_path / "model", kind, kv_heads)
    model.set_attn_implementation("eager")
    ids = torch.arange(80).view(2, 40)
    with FlopCounterMode(display=False) as forward:
        loss = model(input_ids=ids, labels=ids).loss
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    wanted = ids.numel() * forward_operations(shape, ids.size(1))  # this attention multiplies masked tokens too
    assert forward.get_total_flops() == pytest.approx(wanted, rel=0.02)
    assert forward.get_total_flops() + backward.get_total_flops() == pytest.approx(3 * wanted, rel=0.02)
