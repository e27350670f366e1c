"""The script that people run on their GPU runs here on the CPU."""

import re

import gpu
import pytest
import torch


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "BURST", 0)
    monkeypatch.setattr(gpu, "P2_SHAPES", ((16, 4),))


def test_the_report_has_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main(["--device", "cpu", "--seconds", "0", "--networks", "rn26-embed", "--batch", "2"])
    report = capsys.readouterr().out
    assert "failed" not in report
    assert f"torch {torch.__version__}" in report
    lines = re.findall(r"^  (.+?) +[\d.]+ (?:steps|calls)/s  x([\d.]+)", report, flags=re.MULTILINE)
    assert [name for name, _ in lines] == [
        *("eager", "bf16"),
        *("loss never read", "loss read every step"),
        *("bytes on the device", "pageable float32"),
        *("loop", "kernel", "kernel, bf16"),
    ]
    value, gradient = re.findall(r"(\S+) in the (?:value|gradient)", report)
    assert float(value) < 1e-6
    assert float(gradient) < 1e-5


def test_a_failure_does_not_cost_the_rest_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main(["--device", "cpu", "--seconds", "0", "--networks", "no-such-network", "--batch", "1"])
    report = capsys.readouterr().out
    assert "time_network {'name': 'no-such-network', 'size': 1} failed: TembedError" in report
    assert "exact P2, batch 4, 16 kernels" in report


def test_a_way_that_fails_does_not_cost_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise RuntimeError("no kernel image\nfor this GPU")

    gpu.Bench("cpu", 0).print_table("title", "steps/s", {"eager": int, "broken": broken, "bf16": int})
    report = capsys.readouterr().out
    assert "title, broken failed: RuntimeError: no kernel image" in report
    assert "eager" in report
    assert "bf16" in report


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    with pytest.raises(SystemExit, match=r"no GPU here.*--device cpu"):
        gpu.main([])
