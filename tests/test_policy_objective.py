"""The PPO objective: hand-computed losses and gradients, and the faults public trainers had (L numbers)."""

import math

import pytest
import shape_checks  # noqa: F401 (checks shapes in what is imported below)
import torch
from torch import tensor

from policy.objective import bounded_log_ratio, clipped_surrogate, k3_kl, kl_penalty, policy_loss


def loss_of(new, old, advantages, is_trained, **changes):
    """`policy_loss` without KL over lists; the token counts are those of the masks."""
    is_trained_BT = tensor(is_trained, dtype=torch.bool)
    settings = {
        "reference_logprobs_BT": None,
        "is_reasoning_BT": is_trained_BT,
        "entropy_BT": torch.zeros(is_trained_BT.shape),
        "num_trained": float(is_trained_BT.sum()),
        "num_reasoning": float(changes.get("is_reasoning_BT", is_trained_BT).sum()),
    }
    new_BT = new if isinstance(new, torch.Tensor) else tensor(new, requires_grad=True)
    return policy_loss(new_BT, tensor(old), tensor(advantages), is_trained_BT, **(settings | changes))


def gradient_of(new, *args, **changes):
    new_BT = tensor(new, requires_grad=True)
    out = loss_of(new_BT, *args, **changes)
    out.loss.backward()
    return out.loss.item(), new_BT.grad


def test_L56_clipping_sign():
    log_ratio_BT = tensor([[1.5, 0.5]]).log()
    torch.testing.assert_close(clipped_surrogate(log_ratio_BT, tensor([[1.0, -1.0]]), 0.2, 0.2), tensor([[1.2, -0.8]]))


def test_surrogate_is_clipped_on_one_side_only():
    """A bad action that became likelier keeps its full pull back: rho 1.5, A -1 gives -1.5; rho 0.5, A 1 gives 0.5."""
    log_ratio_BT = tensor([[1.5, 0.5]]).log()
    torch.testing.assert_close(clipped_surrogate(log_ratio_BT, tensor([[-1.0, 1.0]]), 0.2, 0.2), tensor([[-1.5, 0.5]]))


def test_asymmetric_clip():
    log_ratio_BT = tensor([[1.5, 0.5]]).log()
    torch.testing.assert_close(clipped_surrogate(log_ratio_BT, tensor([[1.0, -1.0]]), 0.1, 0.3), tensor([[1.3, -0.9]]))


def test_loss_and_gradient_by_hand():
    """Ratios 1 and 1.1, A = 2 and -1, N = 2: loss -(2 - 1.1)/2; d/dlogp = -(rho A)/N."""
    loss, gradient_BT = gradient_of([[0.0, math.log(1.1)]], [[0.0, 0.0]], [[2.0, -1.0]], [[1, 1]])
    assert loss == pytest.approx(-0.45)
    torch.testing.assert_close(gradient_BT, tensor([[-1.0, 0.55]]))


def test_L20_masked_token_holds_nan():
    loss, gradient_BT = gradient_of([[0.0, 0.0]], [[0.0, math.nan]], [[1.0, 1.0]], [[1, 0]])
    assert loss == -1.0
    assert torch.equal(gradient_BT, tensor([[-1.0, 0.0]]))


def test_L20_masked_ratio_that_would_overflow_has_gradient_zero():
    loss, gradient_BT = gradient_of([[0.0, 0.0]], [[0.0, -1000.0]], [[1.0, 1.0]], [[1, 0]])
    assert loss == -1.0
    assert torch.equal(gradient_BT, tensor([[-1.0, 0.0]]))


def test_L20_nan_in_a_counted_token_stays_visible():
    assert math.isnan(loss_of([[0.0, 0.0]], [[0.0, math.nan]], [[1.0, 1.0]], [[1, 1]]).loss.item())


def test_L21_ratio_that_overflows_is_finite():
    """exp(1000) with A = 1 is clipped at 1.2 with gradient 0; the other token is untouched: loss -(1 + 1.2)/2."""
    loss, gradient_BT = gradient_of([[1000.0, 0.0]], [[0.0, 0.0]], [[1.0, 1.0]], [[1, 1]])
    assert loss == pytest.approx(-1.1)
    torch.testing.assert_close(gradient_BT, tensor([[0.0, -0.5]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("difference", [0.0, 1.0, 50.0, 200.0, 1000.0, -1000.0])
def test_L22_k3_is_bounded_before_the_exponential(difference, dtype):
    new_BT = torch.zeros(1, 1, dtype=dtype, requires_grad=True)
    kl_BT = kl_penalty(new_BT, torch.full((1, 1), difference, dtype=dtype), torch.ones(1, 1, dtype=torch.bool))
    kl_BT.sum().backward()
    assert torch.isfinite(kl_BT).all()
    assert torch.isfinite(new_BT.grad).all()
    bounded = max(-20.0, min(20.0, difference))
    assert kl_BT.item() == pytest.approx(math.exp(bounded) - bounded - 1, rel=1e-2)


def test_L24_filtered_token_leaves_the_count():
    loss, gradient_BT = gradient_of([[0.0, -math.inf]], [[0.0, 0.0]], [[1.0, 1.0]], [[1, 0]])
    assert loss == -1.0
    assert torch.equal(gradient_BT, tensor([[-1.0, 0.0]]))


def test_L26_L30_all_masked_is_zero_and_finite():
    new_BT = tensor([[0.5, 0.5]], requires_grad=True)
    out = loss_of(new_BT, [[0.0, 0.0]], [[1.0, 1.0]], [[0, 0]], reference_logprobs_BT=tensor([[0.0, 9.0]]), kl_coef=0.1)
    out.loss.backward()
    assert out.loss.item() == 0.0
    assert torch.equal(new_BT.grad, torch.zeros(1, 2))
    for value in (out.clipped_sum, out.old_kl_sum, out.kl_sum, out.kl_k1_sum, out.entropy_sum, out.max_ratio_error):
        assert value.item() == 0.0


def test_L44_accumulation_changes_neither_loss_nor_gradient():
    """Token losses (2, 2, 2) and (8): the token mean is 3.5, not the mean of means 5."""
    advantages = tensor([[-2.0, -2.0, -2.0], [-8.0, 0.0, 0.0]])
    is_trained = tensor([[True, True, True], [True, False, False]])
    old_BT, parts, grads = torch.zeros(2, 3), [], []
    for rows in (slice(0, 2), slice(0, 1), slice(1, 2)):
        new_BT = torch.zeros(2, 3)[rows].requires_grad_()
        out = policy_loss(
            new_BT,
            old_BT[rows],
            advantages[rows],
            is_trained[rows],
            reference_logprobs_BT=None,
            is_reasoning_BT=is_trained[rows],
            entropy_BT=torch.zeros_like(new_BT),
            num_trained=4.0,
            num_reasoning=4.0,
        )
        out.loss.backward()
        parts.append(out.loss.item())
        grads.append(new_BT.grad)
    assert parts[0] == pytest.approx(3.5)
    assert parts[1] + parts[2] == pytest.approx(3.5)
    torch.testing.assert_close(grads[0], torch.cat(grads[1:]))


def test_L27_the_divisor_is_the_count_of_trained_tokens():
    """10 trained tokens and 30 of a path without gradient: the divisor is 10."""
    is_trained = [[1] * 10 + [0] * 20, [0] * 30]
    loss = loss_of(torch.zeros(2, 30), [[0.0] * 30] * 2, [[1.0] * 30] * 2, is_trained).loss
    assert loss.item() == pytest.approx(-1.0)


def test_L47_kl_estimators_of_a_two_token_policy():
    """Policy (.7, .3), reference (.5, .5): k1 = (0.3365, -0.5108), k3 = (0.0508, 0.1558), both with mean 0.08228."""
    policy, reference = tensor([0.7, 0.3]), tensor([0.5, 0.5])
    k1 = policy.log() - reference.log()
    k3 = k3_kl((reference.log() - policy.log())[None])[0]
    torch.testing.assert_close(k1, tensor([0.3365, -0.5108]), rtol=0, atol=1e-4)
    torch.testing.assert_close(k3, tensor([0.0508, 0.1558]), rtol=0, atol=1e-4)
    assert (policy * k1).sum().item() == pytest.approx(0.08228, abs=1e-5)
    assert (policy * k3).sum().item() == pytest.approx(0.08228, abs=1e-5)
    out = loss_of(
        [policy.log().tolist()],
        [policy.log().tolist()],
        [[0.0, 0.0]],
        [[1, 1]],
        reference_logprobs_BT=reference.log()[None],
    )
    assert out.kl_k1_sum.item() == pytest.approx(0.3365 - 0.5108, abs=1e-4)
    assert out.kl_sum.item() == pytest.approx(0.0508 + 0.1558, abs=1e-4)


def test_L48_kl_is_counted_once():
    """A = 0: the loss is kl_coef times the mean k3, and nothing else."""
    d = 0.3
    out = loss_of(
        [[0.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]], [[1, 1]], reference_logprobs_BT=tensor([[d, d]]), kl_coef=0.5
    )
    assert out.loss.item() == pytest.approx(0.5 * (math.exp(d) - d - 1))


def expected_gradient(is_kl_corrected):
    """Expected gradient of the KL term over the logits of a two-token policy, tokens weighted by their probability."""
    logits = tensor([math.log(0.7), math.log(0.3)], requires_grad=True)
    reference = tensor([0.5, 0.5]).log()
    total = torch.zeros(2)
    for token, probability in enumerate((0.7, 0.3)):
        logprob = torch.log_softmax(logits, 0)[token].view(1, 1)
        out = policy_loss(
            logprob,
            logprob.detach(),
            torch.zeros(1, 1),
            torch.ones(1, 1, dtype=torch.bool),
            reference_logprobs_BT=reference[token].view(1, 1),
            is_reasoning_BT=torch.ones(1, 1, dtype=torch.bool),
            entropy_BT=torch.zeros(1, 1),
            num_trained=1.0,
            num_reasoning=1.0,
            kl_coef=1.0,
            is_kl_corrected=is_kl_corrected,
        )
        total += probability * torch.autograd.grad(out.loss, logits)[0]
    return total


def test_L49_gradient_of_the_kl_term():
    """Corrected: the gradient of KL(pi || ref). Plain k3: that of KL(ref || pi), p - ref in softmax logits."""
    logits = tensor([math.log(0.7), math.log(0.3)], requires_grad=True)
    p = torch.softmax(logits, 0)
    (p * (p.log() - math.log(0.5))).sum().backward()
    torch.testing.assert_close(expected_gradient(True), logits.grad)
    torch.testing.assert_close(expected_gradient(False), tensor([0.2, -0.2]))


def test_kl_gradient_is_exactly_zero_on_answer_tokens_and_not_with_the_mask_off():
    """Must show F: d(KL term)/d(log-prob) over 3 reasoning and 2 answer tokens."""
    reference_BT = tensor([[0.3, -0.2, 0.1, 0.7, -0.9]])
    for is_reasoning, wanted_zero in (([[1, 1, 1, 0, 0]], True), ([[1, 1, 1, 1, 1]], False)):
        new_BT = torch.zeros(1, 5, requires_grad=True)
        kl_penalty(new_BT, reference_BT, tensor(is_reasoning, dtype=torch.bool)).sum().backward()
        assert (new_BT.grad[0, :3] != 0).all()
        assert (new_BT.grad[0, 3:] == 0).all().item() is wanted_zero
        assert (new_BT.grad[0, 3:] != 0).all().item() is not wanted_zero


def test_kl_is_divided_by_reasoning_tokens_and_surrogate_by_trained_tokens():
    """N = 4, M = 2: A = 1 on all gives -1; k3 of d = 0.5 on two tokens gives their mean."""
    d = 0.5
    out = loss_of(
        [[0.0] * 4],
        [[0.0] * 4],
        [[1.0] * 4],
        [[1] * 4],
        reference_logprobs_BT=tensor([[d, d, d, d]]),
        is_reasoning_BT=tensor([[True, True, False, False]]),
        kl_coef=0.1,
    )
    assert out.loss.item() == pytest.approx(-1 + 0.1 * (math.exp(d) - d - 1))
    assert (out.num_trained.item(), out.num_reasoning.item()) == (4, 2)


def test_importance_weights_multiply_the_surrogate_only():
    out = loss_of(
        [[0.0, 0.0]],
        [[0.0, 0.0]],
        [[1.0, 1.0]],
        [[1, 1]],
        reference_logprobs_BT=tensor([[0.5, 0.5]]),
        kl_coef=1.0,
        importance_BT=tensor([[2.0, 0.0]]),
    )
    assert out.loss.item() == pytest.approx(-1.0 + math.exp(0.5) - 1.5)


def test_metrics_by_hand():
    """Ratios 1.5 (A > 0: clipped), 0.5 (A > 0: not), 0.5 twice (A < 0: clipped): 3 clipped, largest error 0.5."""
    log_ratio = [[math.log(1.5), math.log(0.5), math.log(0.5), math.log(0.5)]]
    out = loss_of(
        log_ratio, [[0.0] * 4], [[1.0, 1.0, -1.0, -1.0]], [[1] * 4], entropy_BT=tensor([[1.0, 2.0, 3.0, 4.0]])
    )
    assert out.clipped_sum.item() == 3
    assert out.max_ratio_error.item() == pytest.approx(0.5)
    assert out.entropy_sum.item() == pytest.approx(10.0)
    k3 = [1 / 1.5 + math.log(1.5) - 1, *[2 + math.log(0.5) - 1] * 3]
    assert out.old_kl_sum.item() == pytest.approx(sum(k3))


def test_bounded_log_ratio_keeps_sign_and_bound():
    ratio_BT = bounded_log_ratio(
        tensor([[1.0, 50.0, -50.0, 3.0]]), torch.zeros(1, 4), tensor([[True, True, True, False]])
    )
    assert torch.equal(ratio_BT, tensor([[1.0, 20.0, -20.0, 0.0]]))


def test_a_token_made_improbable_by_the_update_does_not_trip_the_monitors():
    """Old log-prob -1, new -11, reference -1: k3 alone is e^10 - 11 = 22015 nats, rho k3 = 1 - 11 e^-10."""
    one = torch.ones(1, 1, dtype=torch.bool)
    out = policy_loss(
        torch.tensor([[-11.0]], dtype=torch.float64),
        torch.tensor([[-1.0]], dtype=torch.float64),
        torch.zeros(1, 1, dtype=torch.float64),
        one,
        reference_logprobs_BT=torch.tensor([[-1.0]], dtype=torch.float64),
        is_reasoning_BT=one,
        entropy_BT=torch.zeros(1, 1, dtype=torch.float64),
        num_trained=1,
        num_reasoning=1,
        kl_coef=0.02,
        is_kl_corrected=True,
    )
    assert float(out.kl_sum) == pytest.approx(1 - 11 * math.exp(-10))
