"""The one exception whose message is for the user."""


class UserError(Exception):
    """A one-line message that says what is wrong, where, and how to fix it; shown without a traceback.

    `exit_code`: 1 training failed, 2 wrong usage, 3 a preflight check failed, 4 no valid checkpoint can be read or
    written.
    """

    def __init__(self, message: str, *, exit_code: int) -> None:
        # Many messages quote what the user typed, which may contain line breaks or terminal codes.
        super().__init__("".join(char if char.isprintable() else repr(char)[1:-1] for char in message))
        self.exit_code = exit_code
