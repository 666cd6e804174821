"""Nouns become text: for a terminal, for Markdown. Data in, text out."""
