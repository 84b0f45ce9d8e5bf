"""Configuration: one YAML an experiment, one small validated section a stage.

YAML and overrides are merged by OmegaConf, checked by pydantic; an unknown key is an error that names the closest one.
Each field's description holds its meaning, unit and source; ``--help`` of every stage prints them.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field, ValidationError, model_validator

from common.errors import InputError
from common.sections import CurriculumSection, RewardFields, Section, SftSection

Fraction = Field(ge=0.0, le=1.0)


class BaseSection(Section):
    """The model everything starts from and how it is asked."""

    model: str = Field("data_gen/base_model", description="directory or hub id of the causal language model")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="dtype the weights are loaded in")
    template: Literal["plain", "chat"] = Field(
        "plain", description="plain: problem + newline; chat: the tokenizer's chat template"
    )
    instruction: str = Field("", description="text put before the problem, e.g. how steps and answer are to be written")
    stop: tuple[str, ...] = Field((), description="strings that end a completion; text after them is not read")
    separator: str = Field("\n", description="what stands between the steps of a solution that comes as separate texts")
    answer_format: str = Field("Answer: {answer}", description="how the instruction asks for the final answer")
    threads: int = Field(0, ge=0, description="torch CPU threads; 0: as many as there are cores")


class LoraSection(Section):
    """LoRA: policy, reference and PRM share one copy of the base model (docs/lora.md)."""

    rank: int = Field(0, ge=0, description="rank of the adapters of policy and PRM; 0: all weights are trained")
    alpha: float | None = Field(None, gt=0, description="adapters count alpha / rank times; null: 2 * rank")
    targets: tuple[str, ...] = Field(
        (), description="names of the adapted layers, e.g. q_proj,v_proj; empty: every linear layer of the backbone"
    )

    @property
    def scale(self) -> float:
        """``alpha``, or its default."""
        return 2.0 * self.rank if self.alpha is None else self.alpha

    @model_validator(mode="after")
    def _check(self) -> LoraSection:
        if any("lm_head" in name or "embed" in name for name in self.targets):
            raise ValueError(f"targets {self.targets}: embeddings are shared by policy, reference and PRM; name others")
        return self


class DataSection(Section):
    """Problems, sampled paths and step labels."""

    source: str = Field("synthetic", description="'synthetic' (built-in generator) or a JSON Lines file of problems")
    kinds: tuple[str, ...] = Field((), description="kinds of the built-in generator; empty: all of them")
    levels: tuple[int, int] = Field((2, 8), description="steps of the reference solution, lowest and highest, training")
    test_levels: tuple[int, int] | None = Field(None, description="the same for validation and test; null: as training")
    pool: int = Field(1024, ge=1, description="problems whose pass rate is measured")
    validation: int = Field(192, ge=1, description="problems for validation accuracy (stop rules, best checkpoint)")
    test: int = Field(500, ge=1, description="problems of the final evaluation")
    measure_paths: int = Field(8, ge=2, description="paths a problem that measure its pass rate")
    paths: int = Field(
        16, ge=2, description="paths a problem that are labelled, measuring ones included (method: 16-32)"
    )
    pass_low: float = Field(0.2, ge=0, le=1, description="problems with a lower pass rate are left out (method)")
    pass_high: float = Field(0.8, ge=0, le=1, description="problems with a higher pass rate are left out (method)")
    label_measured: bool = Field(
        False,
        description="label the paths that measured problems outside the band too, if some are right, some not",
    )
    temperature: float = Field(1.0, gt=0, description="sampling temperature (method: 0.7-1.0)")
    max_new_tokens: int = Field(160, ge=1, description="length limit of a path, tokens")
    engine: Literal["transformers", "vllm"] = Field("transformers", description="sampling engine")
    cluster: Literal["none", "ray"] = Field(
        "none", description="ray: sample, grade and label on the nodes of a Ray cluster (docs/scale.md)"
    )
    workers: int = Field(
        1, ge=1, description="processes that sample side by side, for models one core runs well; ray: engine replicas"
    )
    max_batch_rows: int = Field(512, ge=1, description="paths sampled at once")
    chunk: int = Field(64, ge=1, description="problems between two saves of the sampling stage")
    label_rule: Literal["forward", "backward"] = Field(
        "forward", description="how the first error is found from support"
    )
    label_sources: tuple[Literal["frequency", "arithmetic", "monte_carlo"], ...] = Field(
        ("frequency", "arithmetic"),
        description="frequency in correct paths; exact check of a step's equations; completions from its prefix;"
        " monte_carlo beside others: a label is kept where both agree",
    )
    label_keys: Literal["auto", "equations", "values"] = Field(
        "auto", description="what equal steps share; auto: equations for the built-in generator, values for real text"
    )
    max_unsupported: float = Field(
        0.05, ge=0, le=1, description="real text: frequency is refused when more steps of correct paths lack support"
    )
    mc_completions: int = Field(8, ge=1, description="monte_carlo: completions a prefix (arXiv:2312.08935: 8)")
    mc_form: Literal["hard", "soft"] = Field(
        "hard", description="monte_carlo: right if some completion is (hard), or the share of right ones (soft)"
    )
    mc_search: Literal["linear", "binary"] = Field(
        "linear", description="monte_carlo: every prefix, or a binary search for the first error (arXiv:2406.06592)"
    )
    mc_threshold: float = Field(
        0.0, ge=0, lt=1, description="monte_carlo: a prefix is right when more than this share of completions is"
    )
    min_support: int = Field(0, ge=0, description="a step in this many or fewer other correct paths is unsupported")
    min_share: float = Field(
        0.34, ge=0, le=1, description="a step taken by fewer of the correct paths through its state is unsupported"
    )
    false_in_correct: Literal["keep", "label", "drop"] = Field(
        "label", description="a correct path that holds a refuted equation: labels stay 1, follow it, or path left out"
    )
    after_error: Literal["negative", "ignore"] = Field(
        "negative", description="steps after the first error: label 0 (method) or left out of the loss (PURE#8)"
    )

    @model_validator(mode="after")
    def _check(self) -> DataSection:
        if self.pass_low > self.pass_high:
            raise ValueError(f"pass_low {self.pass_low} is above pass_high {self.pass_high}")
        if self.paths < self.measure_paths:
            raise ValueError(f"paths {self.paths} is below measure_paths {self.measure_paths}")
        if not self.label_sources:
            raise ValueError("label_sources is empty; name frequency, arithmetic or monte_carlo")
        if self.mc_form == "soft" and self.mc_search == "binary":
            raise ValueError("mc_form soft needs the share of every step: mc_search must be linear")
        if self.levels[0] > self.levels[1]:
            raise ValueError(f"levels {self.levels}: the first must not be above the second")
        return self


class PrmSection(Section):
    """Fit of the process reward model: head first, then all weights (PURE's two stages, scaled to the model)."""

    surprise: bool = Field(
        True, description="the step's logit also reads how likely the policy finds each token (prm.network)"
    )
    head_learning_rate: float = Field(1e-2, ge=0, description="learning rate of the head-only stage")
    head_epochs: float = Field(0.25, ge=0, description="epochs of the head-only stage")
    learning_rate: float = Field(5e-4, ge=0, description="learning rate of the stage that trains all weights")
    epochs: float = Field(2.0, ge=0, description="epochs of that stage")
    batch_paths: int = Field(16, ge=1, description="paths an update")
    lm_weight: float = Field(
        3.0, ge=0, description="weight of the next-token loss on right steps beside the steps' own (arXiv:2406.10216)"
    )
    steps_after_error: int | None = Field(
        0, ge=0, description="wrong paths are read up to this many steps behind their first error; null: whole"
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay")
    holdout: float = Field(0.1, gt=0, lt=0.5, description="share of the PROBLEMS kept for threshold and calibration")
    max_length: int = Field(512, ge=8, description="tokens of problem and path; a step whose end is cut is counted")
    max_batch_tokens: int = Field(32768, ge=1, description="tokens, padding included, of a scoring batch")
    min_first_error_f1: float = Field(0.4, ge=0, le=1, description="held-out first-error F1 below which ppo reacts")
    below_floor: Literal["refuse", "outcome_only", "scale"] = Field(
        "refuse", description="then: stop with an error; process weight 0; or process weight times F1 / floor"
    )


class PpoSection(RewardFields):
    """PPO with a process reward or the signals reward, and its monitors."""

    process_weight: float = Field(0.7, ge=0, description="weight of the process advantage (method)")
    outcome_weight: float = Field(0.3, ge=0, description="weight of the outcome advantage (method)")
    credit: Literal["sum", "mean", "min", "softmin", "delta"] = Field("delta", description="process reward of a step")
    flow: Literal["to_go", "immediate", "whole"] | None = Field(
        None, description="how credit flows to earlier steps; null: the credit rule's own default"
    )
    correct_floor: float = Field(
        0.0, ge=0, le=1, description="least step probability in a path with a right answer; 0: the PRM alone (method)"
    )
    baseline: Literal["moving_average", "group", "rloo", "grpo", "gae"] = Field(
        "moving_average", description="what is taken off a return; gae: a critic's values (docs/critic.md)"
    )
    baseline_momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the moving average, a generation batch")
    gamma: float = Field(0.99, ge=0, le=1, description="gae: discount a step (method: .99; TRL's PPO: 1, a token)")
    gae_lambda: float = Field(
        0.95, ge=0, le=1, description="gae: lambda, a step; 1: returns, 0: one step (TRL's PPO: .95, a token)"
    )
    critic_trunk: Literal["own", "shared"] = Field(
        "own", description="gae: copy of the policy's backbone (TRL's PPO), or a head on the policy's hidden states"
    )
    critic_learning_rate: float = Field(
        1e-3, gt=0, description="gae: AdamW learning rate of the critic (OpenRLHF: 9e-6, 18 times the policy's)"
    )
    critic_clip: float | None = Field(
        0.2, gt=0, description="gae: value clip range, units of the return; null: none (TRL's PPO: .2)"
    )
    critic_warmup: int = Field(2, ge=0, description="gae: first generation batches in which only the critic learns")
    normalise_sources: bool = Field(True, description="divide each source by its own standard deviation before mixing")
    anchor_fraction: float = Field(
        0.15, ge=0, le=1, description="share of problems on outcome reward alone (method: .1-.2)"
    )
    truncated: Literal["zero", "no_gradient"] = Field(
        "zero", description="a path cut at the length limit: outcome 0, or out"
    )
    min_steps: int = Field(
        1, ge=0, description="a right answer behind fewer steps has outcome 0: its reasoning was not shown; 0: off"
    )
    kl_coef: float = Field(
        0.02, ge=0, description="weight of the KL to the reference, reasoning tokens (method: .01-.05)"
    )
    reference: Literal["round", "base"] = Field(
        "round", description="KL reference: start of the round, or the base model"
    )
    frozen_layers: int = Field(
        0,
        ge=0,
        description="lowest layers that, with the embeddings, stay as they are and are shared with the reference",
    )
    kl_high: float = Field(0.2, gt=0, description="KL above this, nats a token, raises kl_coef")
    kl_cap: float = Field(1.0, gt=0, description="KL above this, nats a token, stops the run")
    clip: float = Field(0.2, gt=0, description="PPO clip range of the ratio")
    problems: int = Field(48, ge=1, description="problems a generation batch (method: 32-64)")
    paths: int = Field(8, ge=2, description="paths a problem (method: 8-16)")
    epochs: int = Field(2, ge=1, description="passes over each generation batch (method: 2-4)")
    minibatches: int = Field(2, ge=1, description="updates a pass")
    micro_batch: int = Field(96, ge=1, description="paths a forward pass and device")
    batches: int = Field(16, ge=1, description="generation batches in all")
    learning_rate: float = Field(1e-4, gt=0, description="AdamW learning rate (method: 1e-6 - 5e-6 at 1B+)")
    warmup_updates: int = Field(0, ge=0, description="updates of linear warm-up")
    schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="learning-rate schedule")
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay")
    max_grad_norm: float = Field(1.0, gt=0, description="gradient norm limit")
    gradient_checkpointing: bool = Field(False, description="recompute activations: less memory, a third more time")
    temperature: float = Field(1.0, gt=0, description="sampling temperature; top_p 1, top_k off (trl#6789)")
    engine: Literal["transformers", "vllm"] = Field(
        "transformers", description="sampler: the trained module, or vLLM beside it (docs/vllm.md)"
    )
    vllm_memory: float = Field(
        0.3, gt=0, lt=1, description="vllm: share of a device's memory for its weights and cache (TRL: 0.3)"
    )
    vllm_importance_sampling_correction: bool = Field(
        True, description="vllm: weight the surrogate for the engine's other log-probs (TRL)"
    )
    vllm_importance_sampling_mode: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = (
        Field("token_truncate", description="vllm: a weight for each token or path, clamped or dropped (TRL's names)")
    )
    vllm_importance_sampling_clip_min: float | None = Field(None, gt=0, description="vllm: least weight; null: none")
    vllm_importance_sampling_clip_max: float | None = Field(3.0, gt=0, description="vllm: largest weight (TRL: 3)")
    logp_difference_limit: float = Field(
        0.1, gt=0, description="vllm: mean log-prob difference from the trainer, nats, that ends the run (2 batches)"
    )
    pass_low: float = Field(0.0, ge=0, le=1, description="problems below this measured pass rate are not used")
    pass_high: float = Field(1.0, ge=0, le=1, description="problems above this measured pass rate are not used")
    difficulty_bands: int = Field(3, ge=1, description="bands of pass rate; a batch comes from one band, bands rotate")
    penalty_repeat: float = Field(0.5, ge=0, description="outcome penalty times the share of repeated 4-grams; 0: off")
    penalty_pattern: float = Field(
        0.0, ge=0, description="outcome penalty when every step has the same pattern; 0: off"
    )
    penalty_short: float = Field(0.0, ge=0, description="outcome penalty for fewer steps than the floor; 0: off")
    penalty_format: float = Field(0.0, ge=0, description="outcome penalty for a path without parsable answer; 0: off")
    penalty_theorem: float = Field(
        0.0, ge=0, description="outcome penalty for theorem names no correct path has; 0: off"
    )
    eval_every: int = Field(4, ge=1, description="generation batches between evaluations; a checkpoint at each")
    eval_samples: int = Field(1, ge=1, description="sampled paths a validation problem, beside the greedy one")
    patience: int = Field(8, ge=1, description="evaluations without a better validation accuracy that stop the run")
    repeat_limit: float = Field(
        0.1, ge=0, le=1, description="rise of the share of repeated 4-grams that stops the run (method: 0.1)"
    )
    steps_floor: float = Field(
        0.7, ge=0, le=1, description="mean steps below this share of the start, no gain: stop (method)"
    )
    blackboxes: int = Field(3, ge=0, description="most black boxes of a run (policy.blackbox); 0: none")
    blackbox_kl: float | None = Field(
        1.0, gt=0, description="KL of one update, nats a token, that writes a black box; null: never"
    )
    blackbox_gb: float = Field(
        8.0, gt=0, description="most GB of a black box; above it optimiser, then weights stay out"
    )
    keep_checkpoints: int = Field(2, ge=1, description="newest checkpoints kept, besides the best")
    alarm_actions: bool = Field(True, description="alarms act (docs/doctor.md); false: they are only logged")
    outcome_only_batches: int = Field(5, ge=1, description="batches on the outcome alone after an alarm on the PRM")
    prm_auc_floor: float = Field(0.5, ge=0, le=1, description="AUC of PRM on outcome below this: outcome alone")
    entropy_floor: float = Field(0.1, ge=0, le=1, description="entropy below this share of its start raises kl_coef")
    max_attack_wins: float | None = Field(
        0.05, ge=0, le=1, description="share of attacks that may win (make attack) before ppo refuses; null: never"
    )


class EvalSection(Section):
    """Final evaluation of base and policy."""

    samples: int = Field(8, ge=8, description="sampled paths a problem at temperature 1 (pass@k, majority, best-of-N)")
    temperatures: tuple[float, ...] = Field(
        (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), description="candidates for a model's own best temperature, tried on validation"
    )
    temperature_samples: int = Field(2, ge=1, description="paths a validation problem for each candidate above 0")
    resamples: int = Field(2000, ge=100, description="bootstrap resamples over problems")
    examples: int = Field(24, ge=0, description="paths shown in the report")
    aggregate: Literal["min", "last", "mean", "product"] = Field("min", description="path score behind prm_best8")
    quality_paths: int = Field(
        48, ge=0, description="greedy test paths whose quality is measured (docs/quality.md); 0: none"
    )


class RoundsSection(Section):
    """Rounds that refit the PRM on the newest policy."""

    count: int = Field(1, ge=1, description="rounds in all")
    keep_paths: float = Field(
        0.5, ge=0, le=1, description="share of the earlier rounds' labelled paths kept for a refit"
    )
    f1_tolerance: float = Field(
        0.0, ge=0, description="a refitted PRM may lose this much held-out F1 and still be taken"
    )
    overrides: tuple[tuple[str, ...], ...] = Field(
        (), description="section.key=value for each round in turn, by pipeline.rounds; rounds behind the last have none"
    )


class Config(Section):
    """One experiment."""

    seed: int = Field(0, ge=0, description="seed of everything that is drawn")
    report_to: Literal["none", "wandb", "mlflow", "trackio", "tensorboard"] = Field(
        "none", description="tracker; wandb runs offline unless WANDB_API_KEY is set"
    )
    base: BaseSection = BaseSection()
    lora: LoraSection = LoraSection()
    data: DataSection = DataSection()
    sft: SftSection = SftSection()
    prm: PrmSection = PrmSection()
    ppo: PpoSection = PpoSection()
    curriculum: CurriculumSection = CurriculumSection()
    eval: EvalSection = EvalSection()
    rounds: RoundsSection = RoundsSection()


def load_config(path: Path | str, overrides: list[str] | None = None) -> Config:
    """Read a YAML file, follow its ``extends`` key, apply ``section.key=value`` overrides and validate.

    Raises:
        InputError: missing or malformed file, unknown key (the closest one is named), value of a wrong type or range.
    """
    merged = _read(Path(path), ())
    for override in overrides or []:
        if "=" not in override:
            raise InputError(f"override {override!r}: want section.key=value, e.g. ppo.kl_coef=0.02")
    try:
        tree = OmegaConf.to_container(OmegaConf.merge(merged, OmegaConf.from_dotlist(overrides or [])), resolve=True)
        return Config.model_validate(tree)
    except OmegaConfBaseException as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from error
    except ValidationError as error:
        raise InputError(f"{path}: {_explain(error)}") from error


def _read(path: Path, seen: tuple[Path, ...]) -> Any:
    if path in seen:
        raise InputError(f"{path}: extends itself")
    if not path.is_file():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.yaml")], n=1, cutoff=0)
        raise InputError(f"{path}: no such configuration" + (f"; is {path.parent / near[0]} meant?" if near else ""))
    try:
        loaded = OmegaConf.load(path)
    except Exception as error:  # OmegaConf passes on whatever its YAML reader raises
        raise InputError(f"{path}: not readable as YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(loaded, DictConfig):
        raise InputError(f"{path}: want a mapping of sections at top level")
    parent = loaded.pop("extends", None)
    return loaded if parent is None else OmegaConf.merge(_read(path.parent / str(parent), (*seen, path)), loaded)


def _explain(error: ValidationError) -> str:
    """Turn pydantic's first complaint into one line, naming the closest key for an unknown one."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        section: Any = Config
        for part in first["loc"][:-1]:
            section = section.model_fields[str(part)].annotation
        near = difflib.get_close_matches(str(first["loc"][-1]), list(section.model_fields), n=1, cutoff=0.0)
        prefix = ".".join([*(str(part) for part in first["loc"][:-1]), near[0]])
        return f"unknown key {where!r}; the closest known key is {prefix!r}"
    return f"{where or 'configuration'} = {first['input']!r}: {first['msg']}"


def describe(*sections: str) -> str:
    """Return one line for each field of the named sections: name, default, meaning."""
    lines = []
    for name, field in Config.model_fields.items():
        if name in sections:
            section = field.default
            lines.append(f"\n{name}: {(type(section).__doc__ or '').splitlines()[0]}")
            for key, item in type(section).model_fields.items():
                lines.append(f"  {name}.{key} = {getattr(section, key)!r}\n      {item.description}")
        elif not isinstance(field.default, Section):
            lines.append(f"{name} = {field.default!r}\n      {field.description}")
    return "\n".join(lines)
