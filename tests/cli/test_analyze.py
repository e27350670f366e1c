"""What ``tembed analyze`` prints about the claims."""

from pathlib import Path

import pytest

from tembed.cli.cmd_analyze import show
from tembed.lab.claims.claim import Claim, Judgement, not_measured


def test_claims_that_were_not_measured_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Claim("class purity", "p", "d", weights=Judgement("unclear", "not clearly ahead"))
    missing = [not_measured(name, "p", "no super-classes") for name in ("probe", "silhouette")]
    show([missing[0], measured, missing[1]], Path("out/report.md"), quiet=False)
    assert capsys.readouterr().out.splitlines() == [
        "unclear       class purity: not clearly ahead",
        "not measured  2 claims, named in the report with the reason",
        "the report: out/report.md and out/report.html",
    ]
    show([missing[0]], Path("out/report.md"), quiet=False)
    assert "not measured  1 claim, named in" in capsys.readouterr().out
    show([measured], Path("out/report.md"), quiet=False)
    assert "not measured" not in capsys.readouterr().out
