"""What reports call models, measures and pictures."""

MODELS = {"lgm": "LGM", "network": "neural network"}
MEASURES = {"accuracy": "accuracy", "nll": "NLL", "calibration_error": "calibration error"}
PICTURES = {
    "graph": "layers and connections",
    "learning": "loss and accuracy by epoch",
    "confusion": "which classes are mistaken for which",
    "reliability": "how often it is right at each level of confidence",
    "visible": "accuracy by share of visible inputs",
    "filled": "missing pixels filled with beliefs",
    "uncertain": "the most uncertain samples with their class beliefs",
    "hidden": "what hidden nodes respond to",
}
