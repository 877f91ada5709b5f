"""What the commands of `torchlgm` do; each function here can be called from Python as well."""
