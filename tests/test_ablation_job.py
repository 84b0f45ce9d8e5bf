"""Jobs of an ablation on toys: TRL's own trainer and ours under the same meter."""

import torch
from datasets import Dataset
from policy_toys import (
    RecordedSampler,
    toy_arguments,
    toy_grade,
    toy_model,
    toy_problems,
    toy_tokenizer,
    toy_trainer,
)
from trl import GRPOTrainer

from bench.ablation_job import MeterCallback, undisturbed
from bench.ablation_meter import Meter
from bench.ablation_results import Milestone
from bench.ablation_trl import outcome_reward, shared_rollout
from common.models import weights_hash
from policy.trainer import last_complete_checkpoint


def meter_of(folder, trainer, validate=None, milestones=None):
    """A meter of a trainer with 4 updates a batch that tests nothing but its weights."""
    hashes = []

    def test():
        hashes.append(weights_hash(trainer.model))
        return (0.5,), (0.25,)

    meter = Meter(
        folder,
        updates=4,
        last_batch=3,
        eval_every=1,
        milestones=milestones or [Milestone("rollouts", batches=2)],
        validate=validate,
        test=test,
        stopped_by=lambda: getattr(trainer, "stopped_by", None),
    )
    trainer.add_callback(MeterCallback(meter))
    return meter, hashes


def ppo(folder):
    every = {"eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 4, "max_steps": 12}
    found = {"accuracy": 0.5, "greedy": 0.5, "sampled": 0.5}
    return toy_trainer(folder / "checkpoints", arguments=every, evaluate_policy=lambda model: found)


def test_ppo_ends_at_its_milestone_and_resumes_to_the_same_weights(tmp_path):
    folders = [tmp_path / "straight", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    trainer = ppo(folders[0])
    meter, straight = meter_of(folders[0], trainer)
    trainer.evaluate()
    trainer.train()
    assert trainer.state.global_step == 8
    assert [point.batch for point in meter.curve] == [0, 1, 2]
    assert (meter.tests()["rollouts"].batch, meter.tests()["rollouts"].sampled) == (2, (0.25,))
    assert meter.curve[-1].wall > 0
    assert meter.curve[-1].cpu > 0

    first = ppo(folders[1])
    meter_of(folders[1], first, milestones=[Milestone("short", batches=1)])
    first.evaluate()
    first.train()
    again = ppo(folders[1])
    meter, resumed = meter_of(folders[1], again)
    meter.continue_from(1)
    again.train(resume_from_checkpoint=last_complete_checkpoint(folders[1] / "checkpoints"))
    assert resumed == straight
    assert [point.batch for point in meter.curve] == [0, 1, 2]


def test_trl_trains_untouched_under_the_same_meter(tmp_path):
    problems, tokenizer, sampler = toy_problems(), toy_tokenizer(), RecordedSampler()
    prompts = [problem.text + "\n" for problem in problems]
    trainer = GRPOTrainer(
        model=toy_model(),
        reward_funcs=[outcome_reward(problems, toy_grade, 48, (1,), 3)],
        args=toy_arguments(tmp_path / "trl", beta=0.0, max_steps=12),
        train_dataset=Dataset.from_dict({"prompt": prompts, "index": list(range(len(problems)))}),
        processing_class=tokenizer,
        rollout_func=shared_rollout(
            sampler,
            lambda text: tokenizer(text + "\n", add_special_tokens=False)["input_ids"],
            {prompt: problem.text for prompt, problem in zip(prompts, problems, strict=True)},
            1,
        ),
    )
    start = weights_hash(trainer.model)
    meter, hashes = meter_of(tmp_path, trainer, validate=lambda: {"greedy": 0.1, "sampled": 0.2})
    trainer.train()
    assert trainer.state.global_step == 8
    assert [len(asked) for _, asked in sampler.calls] == [4, 4]  # two batches of 4 problems
    assert len({seed for seed, _ in sampler.calls}) == 2
    assert hashes != [start]
    assert [(point.batch, point.sampled) for point in meter.curve] == [(1, 0.2), (2, 0.2)]
    rewards = [row["rewards/outcome/mean"] for row in trainer.state.log_history if "rewards/outcome/mean" in row]
    assert all(0 < reward < 1 for reward in rewards)


def test_outcome_reward_is_one_for_a_right_answer_that_ended_by_itself():
    tokenizer, problems = toy_tokenizer(), toy_problems()
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("Answer: 0", "Answer: 1", "Answer: 0")]
    reward = outcome_reward(problems, toy_grade, 10, (1,), 0)
    assert reward(completion_ids=[[*ids[0], 1], [*ids[1], 1], [2, *ids[2]]], index=[0, 1, 2]) == [1.0, 0.0, 0.0]


def test_measuring_leaves_mode_and_random_state_as_they_were():
    model = toy_model().train()
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    seen = undisturbed(model, lambda: (model.training, torch.is_grad_enabled(), torch.rand(1)))()
    assert seen[:2] == (False, False)
    assert torch.equal(torch.rand(1), wanted)
    assert model.training
