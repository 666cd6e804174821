"""The example in every layout."""
