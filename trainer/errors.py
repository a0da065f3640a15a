"""The one exception that is meant for the user's eyes."""


class UserError(Exception):
    """A one-line message saying what is wrong, where, and how to mend it; never shown with a traceback.

    `exit_code`: 2 wrong usage, 3 a check before the start failed, 4 no valid checkpoint can be read or written.
    """

    def __init__(self, message: str, *, exit_code: int) -> None:
        # What the user typed is part of many messages, and may hold line breaks or terminal codes.
        super().__init__("".join(char if char.isprintable() else repr(char)[1:-1] for char in message))
        self.exit_code = exit_code
