"""`python -m torchlgm` is the command line."""

from torchlgm.cli.main import main

main()
