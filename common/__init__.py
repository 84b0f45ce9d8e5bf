"""Shared vocabulary: records, configuration, run folders, prompts, models and metrics."""
