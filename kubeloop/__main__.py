"""The `kubeloop` command."""

from __future__ import annotations

import os
import sys

from kubeloop.process.python_gc import importing


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 it did not succeed, 2 wrong usage or input, 130 interrupted."""
    # numpy's BLAS starts a thread per core, which spins for a while before it sleeps. Nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # while the command line was imported
        sys.exit(130)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; what is wrong goes to stderr in one line and a hint."""
    with importing():
        import click

        from kubeloop.cli.main import commands
        from kubeloop.kube.errors import UserError

    try:
        result = commands.main(args=arguments, prog_name="kubeloop", standalone_mode=False)
    except UserError as error:
        from kubeloop.tracing.views.printable import printable

        text = f"error: {error}\n  hint: {error.hint}" if error.hint else f"error: {error}"
        print(printable(text), file=sys.stderr)
        return 2
    except click.ClickException as error:
        print(f"error: {error.format_message()}", file=sys.stderr)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            print(f"  hint: {error.ctx.command_path} --help", file=sys.stderr)
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    main()
