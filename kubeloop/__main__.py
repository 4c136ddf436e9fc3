"""The `kubeloop` command."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING

# first: it ends with a message where an older Python could not read the other imports
import kubeloop.python_version  # noqa: F401
from kubeloop.kube.user_error import UserError
from kubeloop.process.python_gc import importing
from kubeloop.tracing.views.printable import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 it did not succeed, 2 wrong usage or input, 130 interrupted."""
    # numpy's BLAS starts a thread per core, which spins for a while before it sleeps. Nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _open_closed_streams()
    stdout = StandardOutput(1, "w", closefd=False)
    before = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(stdout),
        encoding=before.encoding if before else "utf-8",
        errors="replace",  # prints "?" for what the encoding lacks
        line_buffering=stdout.isatty() or "PYTHONUNBUFFERED" in os.environ,
    )
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the command line was imported
        code = 130
    except (OSError, ExceptionGroup):
        if stdout.failure is None:
            raise
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # which stdout.failure is then
            stream.flush()
    if stdout.failure is not None:
        code = code or 1
        if not isinstance(stdout.failure, BrokenPipeError):  # its reader has ended, such as head
            _print_error(f"cannot write to stdout: {stdout.failure.strerror}")
    atexit._run_exitfuncs()
    os._exit(code)  # sys.exit() would first free each object, in 5 to 15 ms


class StandardOutput(io.FileIO):
    """The file of stdout; `failure`: the last error of writing to it."""

    failure: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise


def _open_closed_streams() -> None:
    """Open standard streams that the caller has closed: a socket or a file would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; what is wrong goes to stderr in one line and a hint."""
    with importing():
        import click

        from kubeloop.cli.main import commands

    try:
        result = commands.main(args=arguments, prog_name="kubeloop", standalone_mode=False)
    except UserError as error:
        _print_error(printable(str(error)), printable(error.hint))
        return 2
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        help_option = "--help" if getattr(getattr(error, "param", None), "common", True) else "--help-all"
        _print_error(error.format_message(), f"{context.command_path} {help_option}" if context is not None else "")
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (MemoryError, BaseExceptionGroup) as error:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(MemoryError) is None:
            raise
        _print_error("not enough memory", "use a machine with more memory, or a smaller input")
        return 2
    return result if isinstance(result, int) else 0


def _print_error(problem: str, hint: str = "") -> None:
    with contextlib.suppress(OSError):  # of stderr: the exit code remains
        print(f"error: {problem}" + (f"\n  hint: {hint}" if hint else ""), file=sys.stderr)


if __name__ == "__main__":
    main()
