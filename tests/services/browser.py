"""The browser that tests look at pages with: a Chromium of the system, without a window.

`CHROMIUM` names one; otherwise it is looked for on PATH. Tests never skip for want of it.

    python -m tests.services.browser [--quiet]     says which, or what to install
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# As root there is no sandbox to be had, and a page of ours needs nothing from elsewhere.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class BrowserMissing(Exception):
    """There is no browser to test with; the message says how to get one."""


def find_browser(environ: Mapping[str, str] = os.environ) -> Path:
    named = environ.get("CHROMIUM")
    for name in [named] if named else NAMES:
        found = shutil.which(name, path=environ.get("PATH"))
        if found is not None:
            return Path(found)
    raise BrowserMissing(
        "no Chromium was found. Install one (Debian, Ubuntu: the package 'chromium'), run 'make"
        " browser' as root, or set CHROMIUM to its path"
    )


@contextmanager
def running_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), headless=True, args=list(ARGUMENTS)
        )
        try:
            yield browser
        finally:
            browser.close()


def main() -> int:
    quiet = "--quiet" in sys.argv[1:]
    try:
        found = find_browser()
    except BrowserMissing as error:
        if not quiet:
            sys.stderr.write(f"tests: {error}\n")
        return 1
    if not quiet:
        sys.stdout.write(f"tests: {found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
