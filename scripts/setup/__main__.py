"""Sets a checkout up: `python scripts/setup run` for using Stackscope, `python scripts/setup dev` for working on it.

Only the standard library is used, and this file alone keeps to a syntax that old Pythons can read, so that they can
say what is wrong with them.
"""

import os
import subprocess
import sys

OLDEST = (3, 11)
NEWER = ("python3.14", "python3.13", "python3.12", "python3.11")


def _find_newer():
    """The newest suitable Python on PATH that works: a name may be a shim for nothing. None: there is none."""
    test = "import sys; sys.exit(sys.version_info < (3, 11))"
    for name in NEWER:
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                process = subprocess.Popen([path, "-c", test], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                process.communicate()
                if process.returncode == 0:
                    return path
    return None


def main():
    if sys.version_info < OLDEST:
        newer = None if "--exact" in sys.argv else _find_newer()
        if newer is not None:
            sys.stdout.flush()
            os.execv(newer, [newer] + sys.argv)
        sys.stderr.write(
            "stackscope: Python 3.11 or newer is needed, and {} is {}.{}. Install a newer one, or name it: "
            "make PYTHON=python3.12 run\n".format(sys.executable or "this", *sys.version_info[:2])
        )
        return 1

    import environment

    return environment.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
