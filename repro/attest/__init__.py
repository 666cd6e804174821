"""Sign runs and replays, and check what others signed. Takes bytes and ports; opens nothing itself."""
