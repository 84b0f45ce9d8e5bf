"""Made problems: templates, a writer behind an OpenAI-compatible endpoint, reasoning-gym; see docs/synthesis.md.

No import leads from here to other modules of the package.
"""
