"""The PRM's loss against values worked out by hand, and the identities it must keep."""

from __future__ import annotations

import math

import pytest
import torch
from jaxtyping import jaxtyped
from shape_checks import checked

from common.records import IGNORED
from prm import objective
from prm.objective import LOWEST_LOGPROB, NonFiniteLoss

gather_steps, right_step_loss, step_loss, surprise_logits, token_logprobs = (
    jaxtyped(typechecker=checked)(getattr(objective, name))
    for name in ("gather_steps", "right_step_loss", "step_loss", "surprise_logits", "token_logprobs")
)


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def test_loss_by_hand() -> None:
    logits = torch.tensor([[2.0, -1.0, 9.0], [0.5, 7.0, 7.0]])
    labels = torch.tensor([[1.0, 0.0, IGNORED], [0.25, IGNORED, IGNORED]])
    # -log sigmoid(2), -log(1 - sigmoid(-1)), and the soft label 1/4 at logit 1/2
    expected = (softplus(-2.0) + softplus(-1.0) + 0.25 * softplus(-0.5) + 0.75 * softplus(0.5)) / 3
    assert float(step_loss(logits, labels)) == pytest.approx(expected, rel=1e-6)


def test_zero_logits_cost_ln_2() -> None:
    labels = torch.tensor([[1.0, 0.0, 0.5, IGNORED]])
    assert float(step_loss(torch.zeros(1, 4), labels)) == pytest.approx(math.log(2), rel=1e-6)


def test_gradient_is_probability_minus_label_over_the_number_of_steps() -> None:
    logits = torch.tensor([[1.0, -2.0, 3.0]], requires_grad=True)
    labels = torch.tensor([[1.0, 0.0, IGNORED]])
    step_loss(logits, labels).backward()
    expected = [(torch.sigmoid(torch.tensor(1.0)) - 1) / 2, torch.sigmoid(torch.tensor(-2.0)) / 2, 0.0]
    torch.testing.assert_close(logits.grad[0], torch.tensor([float(value) for value in expected]))


def test_L61_ignored_steps_are_never_trained() -> None:
    """Whatever stands at an ignored step, -100 itself included, changes neither loss nor gradient."""
    labels = torch.tensor([[1.0, IGNORED, 0.0]])
    results = []
    for middle in (0.0, 50.0, -50.0, float("nan"), float("inf")):
        logits = torch.tensor([[0.3, middle, -0.7]], requires_grad=True)
        loss = step_loss(logits, labels)
        loss.backward()
        assert logits.grad[0, 1] == 0
        results.append((loss.item(), logits.grad[0, 0].item()))
    assert len(set(results)) == 1


def test_window_of_micro_batches_equals_one_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 5, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 2, (8, 5), generator=generator).double()
    labels[0, 2:], labels[5, :] = IGNORED, IGNORED  # uneven numbers of steps; row 5 is a micro-batch without any
    whole = step_loss(logits, labels)
    (whole_gradient,) = torch.autograd.grad(whole, logits)
    window = int((labels != IGNORED).sum())
    parts = [step_loss(logits[k : k + 1], labels[k : k + 1], steps_in_window=window) for k in range(8)]
    (gradient,) = torch.autograd.grad(torch.stack(parts).sum(), logits)
    torch.testing.assert_close(gradient, whole_gradient)
    assert float(sum(parts)) == pytest.approx(float(whole), rel=1e-6)


def test_L60_nothing_labelled_raises_or_is_zero_inside_a_window() -> None:
    logits, labels = torch.ones(2, 3, requires_grad=True), torch.full((2, 3), float(IGNORED))
    with pytest.raises(ValueError, match="no labelled step"):
        step_loss(logits, labels)
    loss = step_loss(logits, labels, steps_in_window=4)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad.abs().sum() == 0


def test_weight_of_wrong_steps_by_hand() -> None:
    logits, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    expected = (math.log(2) + 3 * softplus(1.0)) / 2
    assert float(step_loss(logits, labels, wrong_weight=3.0)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_logits_raise(bad: float) -> None:
    with pytest.raises(NonFiniteLoss, match="1 of 2 step logits"):
        step_loss(torch.tensor([[0.0, bad]]), torch.tensor([[1.0, 0.0]]))


def test_gather_steps_by_hand() -> None:
    logits = torch.arange(10.0).reshape(2, 5)
    assert gather_steps(logits, torch.tensor([[0, 4], [2, 3]])).tolist() == [[0, 4], [7, 8]]


def test_soft_label_minimum_is_the_label() -> None:
    """The loss of a step with label y is least where sigmoid(logit) = y."""
    grid = torch.linspace(-3, 3, 601)
    losses = torch.stack([step_loss(z.reshape(1, 1), torch.tensor([[0.8]])) for z in grid])
    assert torch.sigmoid(grid[losses.argmin()]).item() == pytest.approx(0.8, abs=0.01)


def test_token_logprobs_by_hand() -> None:
    """Two tokens of vocabulary, identity head: hidden states are the logits of the token behind them."""
    hidden = torch.tensor([[[1.0, 0.0], [0.0, 3.0], [2.0, 2.0], [9.0, 9.0]]])
    logprobs = token_logprobs(hidden, torch.eye(2), torch.tensor([[0, 1, 0, 1]]))
    expected = [0.0, -softplus(1.0), -softplus(3.0), -math.log(2)]
    torch.testing.assert_close(logprobs[0], torch.tensor(expected))


def test_pieces_of_a_large_vocabulary_give_the_same_values_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 7, 4, generator=generator).requires_grad_()
    head, ids = torch.randn(11, 4, generator=generator), torch.randint(0, 11, (3, 7), generator=generator)
    results = []
    for at_once in (2**26, 55, 1):
        monkeypatch.setattr("prm.objective.LOGITS_AT_ONCE", at_once)
        logprobs = token_logprobs(hidden, head, ids)
        results.append((logprobs.detach(), torch.autograd.grad(logprobs.square().sum(), hidden)[0]))
    for logprobs, gradient in results[1:]:
        torch.testing.assert_close(logprobs, results[0][0])
        torch.testing.assert_close(gradient, results[0][1])


def test_a_row_of_one_token_has_log_probability_zero() -> None:
    assert token_logprobs(torch.randn(2, 1, 4), torch.randn(6, 4), torch.tensor([[5], [1]])).tolist() == [[0.0], [0.0]]


def test_surprise_by_hand() -> None:
    logprobs = torch.tensor([[0.0, -1.0, -2.0, -0.5, -4.0, -50.0]])
    gates = torch.tensor([[9.0, 1.0, 0.5, 2.0, 1.0, 1.0]])
    starts, ends = torch.tensor([[1, 3, 5]]), torch.tensor([[2, 4, 5]])
    expected = [-1.0 - 1.0, -1.0 - 4.0, LOWEST_LOGPROB]
    torch.testing.assert_close(surprise_logits(logprobs, gates, starts, ends), torch.tensor([expected]))


def test_surprise_of_a_first_token_is_zero() -> None:
    """Nothing predicts the first token of a row, so a step made of it alone gets no evidence."""
    logprobs = token_logprobs(torch.randn(1, 3, 4), torch.randn(6, 4), torch.tensor([[5, 1, 2]]))
    assert surprise_logits(logprobs, torch.ones(1, 3), torch.tensor([[0]]), torch.tensor([[0]])).item() == 0.0


def test_next_token_loss_of_right_steps_by_hand() -> None:
    logprobs = torch.tensor([[0.0, -0.3, -0.7, -5.0]], requires_grad=True)
    weights = torch.tensor([[0.0, 0.5, 0.5, 0.0]])  # one right step made of tokens 1 and 2
    loss = right_step_loss(logprobs, weights, steps_in_window=4)
    assert loss.item() == pytest.approx((0.15 + 0.35) / 4)
    loss.backward()
    assert logprobs.grad.tolist() == [[0.0, -0.125, -0.125, 0.0]]
    assert right_step_loss(logprobs, torch.zeros(1, 4), steps_in_window=4).item() == 0.0
    broken = torch.tensor([[float("nan"), -0.3, -0.7, -float("inf")]])  # at tokens that do not count
    assert right_step_loss(broken, weights, steps_in_window=4).item() == pytest.approx(0.125)


def test_shapes_are_checked() -> None:
    """The annotations are live: a label row of another length is refused by name."""
    with pytest.raises(TypeError, match="labels_BS"):
        step_loss(torch.zeros(2, 3), torch.zeros(2, 4))
