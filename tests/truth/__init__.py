"""How often a verdict is wrong: many replays of known worth, judged."""
