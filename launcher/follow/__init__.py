"""Following a job from the operator's machine, whatever it runs on."""
