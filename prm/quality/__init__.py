"""Quality beside right or wrong: completeness, redundancy, coherence, clarity, detail (docs/quality.md)."""
