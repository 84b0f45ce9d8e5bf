"""``python -m policy``: stage ``ppo``, see ``policy.train``."""

from common.cli import stage_main
from policy.train import train_stage

if __name__ == "__main__":
    sections = ("base", "lora", "data", "sft", "prm", "ppo", "curriculum", "rounds")
    raise SystemExit(stage_main("policy", train_stage.__doc__ or "", sections, train_stage))
