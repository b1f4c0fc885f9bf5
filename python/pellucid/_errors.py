"""Errors. Each says what is wrong, what to do next and where in your program."""

from __future__ import annotations


class Error(Exception):
    """What went wrong (`what`), what to do (`hint`), your line (`where`) and a `code`."""

    code = "internal"

    def __init__(self, what: str, hint: str = "", where: str = "", code: str | None = None) -> None:
        self.what = what
        self.hint = hint
        self.where = where
        if code is not None:
            self.code = code
        message = what
        if hint:
            message += f" ({hint})"
        if where:
            message += f" [at {where}]"
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.hint, self.where, self.code)


class InvalidArgument(Error, ValueError):
    """The request itself is wrong."""

    code = "invalid_argument"


class NotFound(Error, AttributeError):
    """No such model, site, weight or name; the message offers the nearest ones."""

    code = "not_found"


class ShapeMismatch(Error, ValueError):
    """A tensor does not fit where it should go."""

    code = "shape_mismatch"


class OutOfOrder(Error):
    """An edit upstream of something already read, or a cycle between groups."""

    code = "out_of_order"


class NotRun(Error):
    """A site, step or save that was asked for and did not happen."""

    code = "not_run"


class OverBudget(Error):
    """A limit that you or the server have set."""

    code = "over_budget"


class OutOfMemory(Error, MemoryError):
    code = "out_of_memory"


class CorruptFile(Error):
    code = "corrupt_file"


class Unsupported(Error, NotImplementedError):
    """Well-formed, but not something that this version can do."""

    code = "unsupported"


class FileError(Error, OSError):
    code = "io"

    # OSError's own constructor would swallow the arguments.
    def __new__(cls, *args: object, **_: object) -> FileError:
        return Exception.__new__(cls)

    def __str__(self) -> str:
        return Exception.__str__(self)


class Cancelled(Error):
    code = "cancelled"


class NumberNotKnown(Error, TypeError):
    """A number was asked of a value that has none yet, inside a trace."""

    code = "number_not_known"


class NotSaved(Error, AttributeError):
    """A value of a trace that was not saved is used after the block."""

    code = "not_saved"


class PellucidWarning(UserWarning):
    """Something that is most likely not what you meant."""


_BY_CODE: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        ShapeMismatch,
        OutOfOrder,
        NotRun,
        OverBudget,
        OutOfMemory,
        CorruptFile,
        Unsupported,
        FileError,
        Cancelled,
    )
}


def from_status(code: str, what: str, hint: str, where: str) -> Error:
    """The exception for a status of the engine."""
    return _BY_CODE.get(code, Error)(what, hint, where, code)
