"""``tembed models``: the parameter column of Table 1, as counted here and as printed in the paper."""

import tyro


def models() -> int:
    """Print the parameter count of every network of Table 1 (C classes) beside the paper's number."""
    from tembed.models.parameter_counts import parameter_table

    print(f"{'model':<16} {'paper':<13} {'parameters':>18}   {'Table 1':>14}")
    disagreements = 0
    for row in parameter_table():
        counted = f"{row.constant:,} + {row.per_class}C"
        printed = f"{row.paper_millions:.2f}M + {row.paper_per_class}C"
        verdict = "" if row.agrees else "   differs"
        disagreements += not row.agrees
        print(f"{row.name:<16} {row.label:<13} {counted:>18}   {printed:>14}{verdict}")
    print(f"{'rn20':<16} {'(ablation)':<13} the 3-stage network for comparing maximizers, not in Table 1")
    print(f"{'rn26-1x1':<16} {'(control)':<13} rn26 with only the 1x1 convolution of the block's shortcut")
    return 1 if disagreements else 0


def main(arguments: list[str]) -> int:
    return tyro.cli(models, prog="tembed models", args=arguments)
