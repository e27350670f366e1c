"""Make the picture of the page for the documents: python docs/figures/page.py PAGE_FOLDER

    tembed explore rn26-embed/cifar10 --baseline rn26/cifar10 --out PAGE_FOLDER

Mixes two class vectors, and goes to the test patch nearest to the mixture.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent.parent / "tests"
MIXTURE = "#tab=mix&mix=0:0.5,2:0.5"  # airplane and bird
NEAREST = "document.querySelector('.thumbs.mixed button')"

if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))
    from support.chromium import find_browser, running

    browser = find_browser()
    if browser is None:
        sys.exit("no browser on the PATH")
    address = (Path(sys.argv[1]) / "index.html").resolve().as_uri() + MIXTURE
    with tempfile.TemporaryDirectory() as profile, running(browser, Path(profile)) as started:
        tab = started.open(address, 1280, 800, reduced_motion="reduce", color_scheme="light")
        tab.wait(f"tembed.started && {NEAREST}")
        tab.run("document.querySelector('#help').close()")
        tab.run(f"{NEAREST}.click(); document.activeElement.blur()")
        tab.rest()
        (HERE / "page.png").write_bytes(tab.screenshot())
