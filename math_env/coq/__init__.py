"""Proofs as Coq scripts, and coqc's verdict on them."""
