"""Blind comparison of two models' answers by people: one page without names, and what the ratings say."""
