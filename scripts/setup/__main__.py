"""Sets a checkout up: `python scripts/setup run` for using Stackscope, `python scripts/setup dev` for working on it.

Only the standard library is used, and this file alone keeps to a syntax that old Pythons can read, so that they can
say what is wrong with them.
"""

import os
import sys

OLDEST = (3, 11)
NEWER = ("python3.14", "python3.13", "python3.12", "python3.11")


def _find_newer():
    """The newest suitable Python on PATH. None: there is none."""
    for name in NEWER:
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
    return None


def main():
    if sys.version_info < OLDEST:
        newer = None if "--exact" in sys.argv else _find_newer()
        if newer is not None:
            sys.stdout.flush()
            os.execv(newer, [newer, *sys.argv])
        print(
            "Stackscope needs Python 3.11 or newer, and {} is {}.{}. Install a newer one, or name it: "
            "make PYTHON=python3.12 run".format(sys.executable or "this", *sys.version_info[:2]),
            file=sys.stderr,
        )
        return 1

    import environment

    return environment.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
