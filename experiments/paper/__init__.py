"""The paper's tables and figures: as data, how to run them and how to report them."""
