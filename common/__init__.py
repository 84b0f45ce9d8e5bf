"""Shared vocabulary: records, configuration, run folders, prompts, models and metrics."""

import os

# Read once, when torch is first imported: OpenMP threads that wait sleep, they do not spin. On cores that are shared
# with another process spinning made a PPO batch of the shipped model nine times slower (90 s for 10 s).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
