"""What exists for CUDA alone: captured steps and answers, an Adam for them, streams."""
