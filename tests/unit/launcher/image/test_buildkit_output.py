from launcher.image.buildkit_output import Steps

# As Docker 20.10 prints it; buildx leaves the lines with sums out.
BUILD = b"""#1 [internal] load remote build context
#1 sha256:8e1cf719a57dfe7a4509e43e1dd3118138b49cd63fcd49abd530586b1ea9470f
#1 DONE 0.9s

#5 [runtime 2/2] RUN --mount=type=bind,source=docker     set -eu
#5 sha256:39cd95c15aa158b46f45f156553f57d8a193549d58be3cddf902b46f4cfdddfe
#5 CACHED
#6 [installer 1/2] RUN python3 -m venv /installer
#6 DONE 0.4s
#8 [packages 1/1] RUN --mount=type=bind,from=installer /mnt/install locked "/mnt/trainer.txt"
#8 12.30 warning: something
#8 DONE 38.6s
#9 exporting to image
#9 exporting layers 15.4s done
#9 DONE 15.4s
"""


def test_steps_that_took_a_while_are_shown() -> None:
    assert Steps().feed(BUILD) == ["  PyTorch and what it needs: 38.6 s", "  writing the layers: 15.4 s"]


def test_pieces_are_put_together() -> None:
    steps = Steps()
    assert [line for byte in BUILD for line in steps.feed(bytes([byte]))] == Steps().feed(BUILD)


def test_what_goes_on_is_known() -> None:
    steps = Steps("pulling x")
    assert steps.current == "pulling x"
    steps.feed(b"#1 [internal] load build definition from Dockerfile\n")
    assert steps.current == "pulling x"
    steps.feed(b"#8 [stage-2 packages 1/1] RUN x\n#8 3.2 output\n")
    assert steps.current == "PyTorch and what it needs"


def test_the_last_lines_say_why() -> None:
    steps = Steps()
    steps.feed(BUILD)
    steps.feed(b"".join(b"#10 1.0 line %d\n" % number for number in range(60)) + b"executor failed: exit code: 1")
    assert len(steps.last) == 41 and steps.last[-2:] == ["#10 1.0 line 59", "executor failed: exit code: 1"]
    assert not any("sha256:" in line for line in steps.last)
