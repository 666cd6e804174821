"""A run in the words of others: CycloneDX, SLSA provenance, in-toto test results. Nothing here is signed."""
