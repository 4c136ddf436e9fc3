"""The executable `kubectl` of `kubeloop envtest`: runs the kubectl of the PATH."""

from __future__ import annotations

import os
import shutil
import sys


def main(folder: str, arguments: list[str]) -> int:
    """Replace this process by the first kubectl of the PATH outside of `folder`; return 127 if there is none."""
    folders = [entry for entry in os.get_exec_path() if os.path.realpath(entry or ".") != os.path.realpath(folder)]
    program = shutil.which("kubectl", path=os.pathsep.join(folders))
    if program is None:
        print("error: no kubectl on the PATH\n  hint: install kubectl; kubeloop contains none", file=sys.stderr)
        return 127
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
