"""``tembed models``: the networks of Table 1 and appendix A, as counted here and as printed in the paper."""

from dataclasses import dataclass

from tembed.cli.options import read_options


@dataclass(frozen=True)
class Models:
    """Print the parameters of every network of Table 1 (C classes) beside the paper's number, and name the others."""

    stages: bool = False
    """print the channels and the reduction of every stage instead (appendix A)"""


def print_parameters() -> int:
    from tembed.models.parameter_counts import parameter_table
    from tembed.models.registry import list_models, model_info
    from tembed.paper import PARAMETERS

    print(f"{'model':<16} {'paper':<13} {'parameters':>18}   {'Table 1':>14}")
    disagreements = 0
    for row in parameter_table():
        counted = f"{row.constant:,} + {row.per_class}C"
        printed = f"{row.paper_millions:.2f}M + {row.paper_per_class}C"
        verdict = "" if row.agrees else "   differs"
        disagreements += not row.agrees
        print(f"{row.name:<16} {row.label:<13} {counted:>18}   {printed:>14}{verdict}")
    print("\nnot in Table 1:")
    for name in list_models():
        if name not in PARAMETERS:
            print(f"{name:<17} {model_info(name).about}".rstrip())
    return 1 if disagreements else 0


def print_stages() -> int:
    from tembed.models.parameter_counts import stages
    from tembed.paper import STAGES

    disagreements = 0
    for side, table in STAGES.items():
        print(f"\nimages of {side} pixels: channels in and out, and the side's reduction (-: no linear transform)")
        print(f"{'model':<16} {'stage 1':<12} {'stage 2':<12} {'stage 3':<12} {'block':<12} stage 4")
        for name, printed in table.items():
            found = stages(name, side)
            verdict = "" if found == printed else f"   the paper: {printed}"
            disagreements += found != printed
            print(f"{name:<16} " + " ".join(f"{part:<12}" for part in found.split(", ")).rstrip() + verdict)
    return 1 if disagreements else 0


def main(arguments: list[str]) -> int:
    command = read_options(Models, "tembed models", arguments)
    return print_stages() if command.stages else print_parameters()
