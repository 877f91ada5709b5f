"""`python -m torchlgm` is the command line."""

from torchlgm.cli import main

main()
