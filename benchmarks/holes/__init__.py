"""HoleBench: classifiers on tables of which entries are missing."""
